"""What one evaluation has found so far, and the report that it ends in."""

from dataclasses import dataclass

from cuda_tui.evaluation.report import (
    BuildReport,
    Code,
    Flag,
    NotMeasured,
    Performance,
    Profile,
    Receipt,
    Report,
    Verdict,
    VerifyReport,
)
from cuda_tui.evaluation.stages import Stages


@dataclass
class Findings:
    """Filled in stage by stage; whichever stage is the last one, the report holds all that was found before."""

    stages: Stages
    sandbox: str
    flags: tuple[Flag, ...] = ()
    build: BuildReport | None = None
    verify: VerifyReport | None = None
    profile: Profile | None = None

    def passed(self, performance: Performance, receipt: Receipt) -> Report:
        """Verified, and timed if that was asked for."""
        breaks = any(flag.code == "COMPILE" for flag in self.flags)
        message = summary(performance) + ("; breaks torch.compile" if breaks else "")
        return self._report(Verdict.PASSED, None, message, performance, receipt)

    def rejected(self, code: Code, reason: str, *, not_measured: str = "rejected") -> Report:
        """Shown to be wrong."""
        return self._report(Verdict.REJECTED, code, reason, NotMeasured(reason=not_measured))

    def unverified(self, code: Code, message: str, *, not_measured: str) -> Report:
        """Nothing is proved either way."""
        return self._report(Verdict.UNVERIFIED, code, message, NotMeasured(reason=not_measured))

    def _report(
        self,
        verdict: Verdict,
        code: Code | None,
        message: str,
        performance: Performance,
        receipt: Receipt | None = None,
    ) -> Report:
        return Report(
            verdict=verdict,
            code=code,
            message=message,
            performance=performance,
            build=self.build,
            verify=self.verify,
            profile=self.profile,
            flags=self.flags,
            stages=self.stages.timings,
            sandbox=self.sandbox,
            receipt=receipt,
        )


def summary(performance: Performance) -> str:
    """The ratios in words; "verified" where nothing was timed."""
    if isinstance(performance, NotMeasured):
        return "verified"
    return "; ".join(
        f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] against {ratio.baseline}: {ratio.outcome}"
        for ratio in performance.ratios
    )

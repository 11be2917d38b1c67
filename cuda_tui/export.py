"""A Markdown report of a session, from its events alone."""

import time
from collections.abc import Iterable
from pathlib import Path

from cuda_tui.errors import UsageError
from cuda_tui.evaluation.conditions import gpu_lines
from cuda_tui.evaluation.report import Measured, NotMeasured, Ratio, Report, Verdict
from cuda_tui.events import Entry, Unknown
from cuda_tui.state.apply import apply
from cuda_tui.state.model import Candidate, NoticeBlock, State
from cuda_tui.words import counted


def fold(records: Iterable[Entry | Unknown]) -> State:
    """The state after all events of a log."""
    state = State()
    for record in records:
        state = apply(state, record.event, at=record.at) if isinstance(record, Entry) else apply(state, record)
    return state


def write_report(state: State, path: Path) -> Path:
    """Write the report to a new file and return its full path. Raises UsageError where it exists or cannot be made."""
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report(state))
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", hint="name another file: /export FILE") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file: /export FILE") from error
    return path.absolute()


def report(state: State) -> str:
    """The whole report."""
    parts = [_task(state), _best(state), _table(state), _method(state), _kernels(state), _notes(state), _repeat(state)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _code(text: str) -> str:
    """Foreign text in a code span: backticks inside need a longer fence."""
    line = " ".join(text.split())
    fence = "``" if "`" in line else "`"
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _us(microseconds: float) -> str:
    return f"{microseconds:,.1f} µs" if microseconds < 10_000 else f"{microseconds / 1_000:,.2f} ms"


def _ratio(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else "n/a"


def _task(state: State) -> list[str]:
    session = state.session
    if session is None:
        return ["# Session without a beginning"]
    lines = [
        f"# {_cell(session.title)}",
        "",
        f"- Session: {_code(session.session)}, started {_time(state.started_at)}, cuda-tui {session.version}",
        f"- File: {_code(session.source or session.title)}",
        f"- Workspace: {_code(session.workspace)}",
        f"- Device: {_code(session.device)}; sandbox: {session.sandbox or 'none'}",
        f"- Agent: {_code(state.model)}, approval {state.approval.value}",
    ]
    if state.ended is not None:
        lines.append(f"- Ended: {state.ended.outcome.value}. {_cell(state.ended.message)}")
    return lines


def _best(state: State) -> list[str]:
    best = state.best
    if best is None or best.measured is None:
        return ["## Result", "", "No candidate is verified and faster than the fastest baseline by its 95% interval."]
    measured = best.measured
    lines = [
        "## Result",
        "",
        f"Candidate {best.number} is **{_ratio(measured.headline)}** as fast as {measured.headline.baseline}, "
        f"the fastest valid baseline (95% interval). It takes {_us(measured.candidate.median_us)} a call.",
    ]
    lines.extend(
        f"- Against {ratio.baseline}: {_ratio(ratio)}, {ratio.outcome.value}"
        for ratio in measured.ratios
        if ratio.baseline != measured.headline.baseline
    )
    lines.extend(f"- {item.name}: not available, {_cell(item.reason)}" for item in measured.unavailable)
    if best.commit:
        lines.append(f"- Commit: {_code(best.commit)}")
    lines.extend(f"- Flag {flag.code}: {_cell(flag.message)}" for flag in best.report.flags)
    return lines


def _table(state: State) -> list[str]:
    if not state.candidates:
        return []
    lines = [
        "## Candidates",
        "",
        "| no. | verdict | candidate | spread | processes | headline | against eager | what |",
        "|--:|---|--:|--:|--:|---|---|---|",
    ]
    return [*lines, *(_row(candidate) for candidate in state.candidates)]


def _row(candidate: Candidate) -> str:
    report = candidate.report
    verdict = f"{report.verdict.value} {report.code.value}" if report.code else report.verdict.value
    what = _cell(candidate.label or report.message)
    measured = candidate.measured
    if measured is None:
        return f"| {candidate.number} | {verdict} | | | | | | {what} |"
    timing, headline = measured.candidate, measured.headline
    cells = [
        str(candidate.number),
        verdict,
        _us(timing.median_us),
        f"±{timing.spread:.1%}",
        str(len(timing.process_medians_us)),
        f"{_ratio(headline)} vs {headline.baseline}, {headline.outcome.value}",
        _ratio(measured.ratio_to("eager")),
        what,
    ]
    return "| " + " | ".join(cells) + " |"


def _latest(state: State) -> Report | None:
    best = state.best
    if best is not None:
        return best.report
    return state.candidates[-1].report if state.candidates else None


def _method(state: State) -> list[str]:
    latest = _latest(state)
    if latest is None:
        return []
    lines = ["## Method", ""]
    match latest.performance:
        case Measured() as measured:
            lines.extend([f"- Device: {_cell(measured.device)}", f"- Timing: {_cell(measured.method)}"])
            lines.append(f"- Calls timed: {measured.candidate.calls:,} in {measured.candidate.slices:,} slices")
            lines += [f"- {_cell(line)}" for line in gpu_lines(measured)]
            if measured.foreign_load is not None:
                lines.append(f"- Cores kept busy by others meanwhile: {measured.foreign_load:.1f}")
        case NotMeasured(reason=reason):
            lines.append(f"- Not measured: {_cell(reason)}")
    if latest.verify is not None:
        verify = latest.verify
        passed = sum(trial.passed for trial in verify.trials)
        lines.append(
            f"- Verified: {passed} of {len(verify.trials)} trials, {verify.tensors_compared} tensors "
            f"against a {verify.reference_dtype} reference"
        )
        if verify.not_compared:
            lines.append(f"- Not compared: {_cell(', '.join(verify.not_compared))}")
        lines += [f"- {_cell(line)}" for line in verify.form_lines]
    if latest.build is not None:
        lines.append(f"- Built for {latest.build.target}: {_cell(latest.build.toolchain)}")
    if latest.verdict is not Verdict.UNVERIFIED:
        lines.append(f"- Milestone: {latest.milestone.value}")
    return lines


def _kernels(state: State) -> list[str]:
    lines: list[str] = []
    for profile in state.profiles:
        lines.extend(["", f"### Where the time of the {profile.subject} goes", ""])
        lines.extend(["| share | time | calls | name | evidence |", "|--:|--:|--:|---|---|"])
        lines.extend(
            f"| {row.share:.1%} | {_us(row.total_us)} | {row.calls} | {_cell(row.name)} | {_cell(row.evidence)} |"
            for row in profile.rows[:15]
        )
        lines.extend(f"- {_cell(note)}" for note in profile.notes)
    return ["## Profile", *lines] if lines else []


def _notes(state: State) -> list[str]:
    notes = [block.text for block in state.blocks if isinstance(block, NoticeBlock) and block.kind == "note"]
    return ["## Notes", "", *(f"- {_cell(note)}" for note in notes)] if notes else []


def _repeat(state: State) -> list[str]:
    session, best = state.session, state.best
    if session is None:
        return []
    lines = ["## How to repeat it", "", "```sh", f"cd {session.workspace}"]
    if best is not None and best.commit:
        lines.append(f"git checkout {best.commit}")
    lines.extend(["cuda-tui eval .", "```"])
    receipt = best.report.receipt if best else None
    if receipt is not None:
        lines.extend(["", "Receipt:", ""])
        lines.extend(f"- {_code(name)} sha256 {_code(digest)}" for name, digest in sorted(receipt.files.items()))
        if receipt.library_sha256:
            lines.append(f"- library sha256 {_code(receipt.library_sha256)}")
        lines.append(f"- seeds {', '.join(str(seed) for seed in receipt.seeds)}")
        lines.append("- " + ", ".join(f"{name} {version}" for name, version in sorted(receipt.versions.items())))
    failed = [item for item in state.candidates if item.report.verdict is Verdict.REJECTED]
    if failed:
        lines.extend(["", f"{counted(len(failed), 'candidate')} rejected; the table says with which code."])
    return lines

"""What the autopilot does, in order, as one generator: it yields steps and receives the results of their calls.

Look, predict, write everything, measure; find the group that breaks a candidate and drop it; tune a little; keep the
best; say what was left. The same results always lead to the same steps, so a session is continued by playing its
results through the generator again.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cuda_tui.autopilot import cpp_tuning, cuda_launches, story
from cuda_tui.autopilot.design import Candidate, Design, TaskFacts
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.roofline import reached
from cuda_tui.evaluation.report import Code, Report, Verdict
from cuda_tui.messages import ReadDetails, ReportDetails, ToolReply, TraceDetails
from cuda_tui.words import counted

START = "HEAD^{/^Start: }"  # the workspace's first commit, as git names it by its message
REACH = 1.02  # a tuned candidate replaces the best only when it is this much better

NO_WORSE = 0.997
REACH_ON_GPU = 1.005  # its intervals are narrower


@dataclass(frozen=True)
class Call:
    """A wish to run a tool."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One reply: what is said, and the calls that go with it."""

    text: str
    calls: tuple[Call, ...] = ()


Steps: TypeAlias = Generator[Step, list[ToolReply], None]
Part: TypeAlias = Generator[Step, list[ToolReply], Any]


@dataclass
class Trial:
    """A candidate that was evaluated."""

    candidate: Candidate
    report: Report
    favoured: bool = False  # its kernels were seen to be faster, each by itself: it only must not be slower

    @property
    def gain(self) -> float:
        """Against eager; 0 where there is no verified measurement."""
        found = story.eager_ratio(self.report)
        return found.value if found else 0.0


class Strategy:
    """One session."""

    def __init__(self, designs: dict[str, Design] | None = None) -> None:
        self.designs = {} if designs is None else designs  # analyses made before, by what they were made from
        self.trials: list[Trial] = []
        self.on_disk: dict[str, str] = {}  # what we wrote since the start was last restored
        self.dropped: dict[int, str] = {}
        self.pending: list[Call] = []  # notes that go along with the next step
        self.refused = ""
        self.reach = REACH

    def steps(self) -> Steps:
        """The session from the beginning."""
        facts, trace, problem = yield from self._look()
        if trace is None:
            yield from self._end(f"I could not trace the model, so there is nothing I can fuse. {problem}")
            return
        source, problem = yield from self._read(facts)
        if source is None:
            yield from self._end(problem)
            return
        try:
            key = repr((trace, facts, source))
            if key not in self.designs:
                self.designs[key] = Design.of(trace, facts, source)
            design = self.designs[key]
        except (Unfusible, SyntaxError) as reason:
            yield from self._end(f"I cannot rewrite this model: {reason}.")
            return
        if not design.promising:
            yield from self._end(self._nothing(design))
            return
        yield from self._work(design)

    # ---- looking

    def _look(self) -> Part:
        results = yield Step(
            "I begin with what runs: the task, and the model's operators with their shapes and bytes.",
            (Call("read", {"path": "task.toml"}), Call("trace_model")),
        )
        task, traced = results
        facts = TaskFacts.read(task.result.details.text if isinstance(task.result.details, ReadDetails) else "")
        details = traced.result.details
        trace = details.trace if isinstance(details, TraceDetails) else None
        return facts, trace, traced.result.content.strip()

    def _read(self, facts: TaskFacts) -> Part:
        """The source, or None and the reason."""
        results = yield Step("", (Call("read", {"path": facts.file}),))
        details = results[0].result.details
        if isinstance(details, ReadDetails):
            return details.text, ""
        return None, f"I could not read {facts.file}: {results[0].result.content.strip()}"

    # ---- working

    def _work(self, design: Design) -> Part:
        candidate = Candidate(groups=design.promising)
        self.reach = REACH_ON_GPU if design.machine.is_gpu else REACH
        text = self._hypothesis(design)
        self.note(f"## Plan\n{text}")
        report = yield from self.evaluate(design, candidate, text=text, label="all groups fused")
        plain = design.without_clusters(candidate)
        if report is not None and report.verdict is Verdict.REJECTED and plain != candidate:
            candidate, text = plain, f"The same with one block for each row.\n{story.verdict_line(report)}"
            report = yield from self.evaluate(design, candidate, text=text, label="without clusters")
        while report is not None and report.verdict is Verdict.REJECTED and candidate.groups:
            bad, why = yield from self._culprits(design, candidate, report)
            self.dropped.update(dict.fromkeys(bad, why))
            candidate = candidate.only(tuple(index for index in candidate.groups if index not in bad))
            if not candidate.groups or not bad:
                break
            names = ", ".join(design.names[index] for index in bad)
            text = f"I leave {names} to PyTorch ({why}) and go on with the rest."
            report = yield from self.evaluate(design, candidate, text=text, label=f"without {names}")
        if report is not None and report.verdict is Verdict.PASSED:
            tuner = cuda_launches if design.machine.is_gpu else cpp_tuning
            yield from tuner.tune(self, design)
        yield from self._conclude(design)

    def note(self, text: str) -> None:
        """Written into the notes with the next step."""
        self.pending.append(Call("note", {"text": text}))

    def evaluate(self, design: Design, candidate: Candidate, *, text: str, label: str, tool: str = "measure") -> Part:
        """Write the candidate and evaluate it; None where that did not happen. The result is remembered."""
        self.refused = ""
        try:
            files = design.write(candidate).files
        except Unfusible as reason:
            self.refused = f"the candidate could not be written: {reason}"
            return None
        if not (yield from self._write(files, text)):
            return None
        for said in ("", "That evaluation gave no verdict; once more."):
            results = yield Step(said, (Call(tool, {"label": label}),))
            details = results[0].result.details
            if isinstance(details, ReportDetails):
                self.trials.append(Trial(candidate, details.report))
                return details.report
        self.refused = results[0].result.content.strip()
        return None

    def _write(self, files: dict[str, str], text: str) -> Part:
        """Bring the files in place, in one reply; say whether all of it was allowed."""
        calls, self.pending = list(self.pending), []
        if set(self.on_disk) - set(files):  # files of another candidate would be built as well
            calls.append(Call("restore", {"commit": START}))
            self.on_disk = {}
        changed = {path: content for path, content in files.items() if self.on_disk.get(path) != content}
        calls += [Call("write", {"path": path, "content": content}) for path, content in changed.items()]
        if not calls:
            return True
        results = yield Step(text, tuple(calls))
        failed = ""
        for call, reply in zip(calls, results, strict=True):
            if reply.result.is_error and call.name != "note":
                failed = failed or reply.result.content.strip()
            elif call.name == "write":
                self.on_disk[call.arguments["path"]] = call.arguments["content"]
        self.refused = failed
        return not failed

    def _culprits(self, design: Design, candidate: Candidate, report: Report) -> Part:
        """The groups of a rejected candidate that cause the rejection, and the reason."""
        why = report.message
        if report.build is not None and not report.build.succeeded:
            files = {
                match.group(1)
                for error in report.build.errors
                if (match := re.search(r"(\w+?)(?:_binding)?\.\w+$", error.file))
            }
            named = [index for index in candidate.groups if design.names[index] in files]
            return (named or list(candidate.groups)), "it does not compile"
        suspects = list(candidate.groups)
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            names = ", ".join(design.names[index] for index in half)
            report_of_half = yield from self.evaluate(
                design, candidate.only(tuple(half)), tool="verify", label=f"only {names}",
                text=f"Look for the group that causes it: {names} alone.\n{story.verdict_line(report)}",
            )  # fmt: skip
            if report_of_half is None:
                break
            suspects = half if report_of_half.verdict is Verdict.REJECTED else suspects[len(suspects) // 2 :]
        return suspects, why

    # ---- ending

    def best(self) -> Trial | None:
        """The best verified measurement. An earlier trial stands unless a later one is clearly better."""
        best: Trial | None = None
        for trial in self.trials:
            if trial.gain > (best.gain * (NO_WORSE if trial.favoured else self.reach) if best else 0.0):
                best = trial
        return best

    def _conclude(self, design: Design) -> Part:
        best = self.best()
        if best is None or not story.is_faster(best.report):
            yield from self._give_up(design)
            return
        picked = best is not self.trials[-1] or not best.favoured  # the favoured one was chosen before its measurement
        if len(self.trials) > 1 and picked:
            best = yield from self._measure_winner(design, best)
            if not story.is_faster(best.report):
                yield from self._give_up(design)
                return
        found = story.eager_ratio(best.report)
        assert found is not None
        names = ", ".join(design.names[index] for index in best.candidate.groups)
        predicted = sum(design.estimates[index].saved_us for index in best.candidate.groups)
        lines = [f"{story.ratio(found)}, with {counted(len(best.candidate.groups), 'fused kernel')}: {names}."]
        expected = design.whole_us / max(design.whole_us - predicted, 1e-9)
        lines.append(f"Predicted was about {expected:.2f}x. {story.verdict_line(best.report)}")
        if design.machine.is_gpu:
            lines += reached(design, best.candidate, best.report)
        lines += self._left(design)
        yield from self._end("\n".join(lines))

    def _measure_winner(self, design: Design, best: Trial) -> Part:
        """Put the winner's files in place and measure it afresh: that figure counts, whatever it is."""
        text = "The best of several measurements flatters itself, so its files go in place and are measured afresh."
        yield from self.evaluate(design, best.candidate, text=text, label="the winner, measured afresh")
        last = self.trials[-1]
        return last if last.candidate == best.candidate else best

    def _give_up(self, design: Design) -> Part:
        last = self.trials[-1].report if self.trials else None
        if last is not None and last.code is Code.COMPILED_ONLY:
            yield from self._end(
                "The kernels compile, but there is no GPU here to run them, so nothing is verified and no speed is "
                "claimed. Run the workspace on a machine with a GPU."
            )
            return
        if self.on_disk:
            yield Step("No candidate was verified as faster, so the model goes back to how it was.",
                       (Call("restore", {"commit": START}),))  # fmt: skip
        said = story.verdict_line(last) if last else self.refused
        yield from self._end("\n".join(["I found nothing that helps here.", said, *self._left(design)]))

    def _left(self, design: Design) -> list[str]:
        lines = [f"Dropped: {design.names[index]} ({why})." for index, why in self.dropped.items()]
        libraries = design.library_calls()
        if libraries:
            lines.append(f"Left to the libraries, which do them best: {libraries}.")
        return lines

    def _nothing(self, design: Design) -> str:
        reasons = dict.fromkeys(f"{design.graph.nodes[name].op}: {why}" for name, why in design.fusion.left.items())
        return "\n".join([
            "I see nothing to gain by fusing: no chain of elementwise operators or reductions moves enough memory.",
            *(f"- {reason}" for reason in list(reasons)[:8]),
            *self._left(design),
        ])  # fmt: skip

    def _hypothesis(self, design: Design) -> str:
        total = sum(design.estimates[index].saved_us for index in design.promising)
        lines = [
            f"Fuse {counted(len(design.promising), 'group')} of operators around the library calls.",
            f"The model has {len(design.graph.nodes)} operators; on {design.machine.name} I estimate "
            f"{story.time(design.whole_us)} a call. Between the library calls, elementwise operators and reductions "
            f"write intermediates to memory and read them again; fused, they should take {story.time(total)} less:",
        ]
        lines += [
            story.group_line(design.names[index], design.works(index), design.estimates[index])
            for index in design.promising
        ]
        others = [design.names[index] for index in range(len(design.groups)) if index not in design.promising]
        if others:
            lines.append(f"- left as they are, too small to gain from a call of our own: {', '.join(others)}")
        return "\n".join(lines)

    def _end(self, summary: str) -> Part:
        yield Step("", (Call("note", {"text": f"## Result\n{summary}"}), Call("finish", {"summary": summary})))

"""The transcript's blocks as Content: what was said, what was run, what came of it."""

import json

from textual.content import Content

from cuda_tui.agent.protocols import FINISH
from cuda_tui.evaluation.report import Measured, NotMeasured, Outcome, Report, Verdict
from cuda_tui.messages import (
    BuildDetails,
    ChangeDetails,
    ProfileDetails,
    ReadDetails,
    ReportDetails,
    ToolCall,
    ToolResult,
    TraceDetails,
)
from cuda_tui.state.model import (
    Block,
    Candidate,
    NoticeBlock,
    ReplyBlock,
    State,
    Stream,
    ToolBlock,
    ToolStatus,
    UserBlock,
    VerdictBlock,
)
from cuda_tui.tui.render import diff as diffs
from cuda_tui.tui.render.markdown import markdown
from cuda_tui.tui.render.text import plain, shortened, visible
from cuda_tui.tui.render.units import interval, short_count, time_us, times, took

FOLDED_LINES = 4
LONGEST_NOTE = 100  # characters of a note while it is folded
_SAID_BELOW = frozenset({FINISH, "note"})  # tools whose text is the notice that follows them
_STATUS = {
    ToolStatus.ASKED: ("?", "$text-warning bold"),
    ToolStatus.APPROVED: ("·", "$text-muted"),
    ToolStatus.RUNNING: ("▸", "$text-primary bold"),
    ToolStatus.DONE: ("✓", "$text-success"),
    ToolStatus.FAILED: ("✗", "$text-error"),
    ToolStatus.REJECTED: ("–", "$text-warning"),
    ToolStatus.INTERRUPTED: ("!", "$text-warning"),
}
_NOTICE = {
    "session": ("·", "$text-muted"),
    "note": ("✎", "$text-muted"),
    "commit": ("◆", "$text-muted"),
    "restore": ("↶", "$text-warning"),
    "retry": ("↻", "$text-warning"),
    "problem": ("!", "$text-error"),
    "budget": ("!", "$text-warning"),
    "settings": ("·", "$text-muted"),
    "end": ("■", "$text-primary"),
    "unknown": ("?", "$text-muted"),
}


def css_class(block: Block, state: State) -> str:
    """The classes of the block's widget."""
    match block:
        case UserBlock():
            return "block-user"
        case ReplyBlock():
            return "block-reply"
        case ToolBlock(status=status):
            return "block-tool" + (" -bad" if status is ToolStatus.FAILED else "")
        case VerdictBlock(number=number):
            candidate = state.candidate(number)
            return f"block-verdict -{candidate.report.verdict.value.lower()}" if candidate else "block-verdict"
        case NoticeBlock():
            return "block-notice"


def render(block: Block, state: State, *, unfolded: bool) -> Content:
    """The block as it is shown; `unfolded` shows all of a tool's output and of the model's thinking."""
    match block:
        case UserBlock(text=text):
            return Content(visible(text))
        case ReplyBlock():
            return _reply(block, unfolded=unfolded)
        case ToolBlock():
            return _tool(block, unfolded=unfolded)
        case VerdictBlock(number=number):
            candidate = state.candidate(number)
            best = state.best
            return _verdict(candidate, best=best is not None and best.number == number) if candidate else Content("")
        case NoticeBlock():
            return _notice(block, unfolded=unfolded)


def copied(block: Block, state: State) -> str:
    """The block's logical text, for the clipboard."""
    match block:
        case UserBlock(text=text) | ReplyBlock(text=text):
            return text
        case ToolBlock(result=result) if result is not None:
            return result.content
        case ToolBlock() | VerdictBlock() | NoticeBlock():
            return render(block, state, unfolded=True).plain


def _reply(block: ReplyBlock, *, unfolded: bool) -> Content:
    parts: list[Content] = []
    if block.thinking:
        text = visible(block.thinking.strip())
        parts.append(Content.styled(text if unfolded else f"Thought: {shortened(text, 70)}", "$text-muted italic"))
    if block.text:
        parts.append(markdown(block.text))
    return Content("\n").join(parts)


def streaming(stream: Stream) -> Content:
    """The reply that is being written."""
    parts: list[Content] = []
    if stream.thinking:
        tail = visible(stream.thinking.strip())[-400:]
        parts.append(Content.styled(tail, "$text-muted italic"))
    if stream.text:
        parts.append(markdown(stream.text, streaming=True))
    for call in stream.calls:
        text = f"… {call.name}  {short_count(len(call.arguments))} characters"
        parts.append(Content.styled(visible(text), "$text-muted"))
    return Content("\n").join(parts)


def _notice(block: NoticeBlock, *, unfolded: bool) -> Content:
    sign, style = _NOTICE[block.kind]
    folded = block.kind == "note" and not unfolded  # the whole of it is in NOTES.md
    shown = visible(shortened(block.text, LONGEST_NOTE) if folded else block.text)
    text = Content.assemble((f"{sign} ", style), shown)
    if block.kind in ("note", "commit", "session", "settings"):
        text = text.stylize("$text-muted")
    if block.hint:
        text = Content.assemble(text, "\n", (visible(block.hint), "$text-muted"))
    return text


def call_subject(call: ToolCall) -> str:
    """What a call is about, in a few words: its path, command or first argument."""
    for name in (
        "path",
        "file",
        "command",
        "pattern",
        "query",
        "subject",
        "commit",
        "label",
        "text",
        "message",
        "summary",
    ):
        value = call.arguments.get(name)
        if isinstance(value, str) and value:
            return visible(shortened(value, 160))
    return visible(shortened(json.dumps(call.arguments, ensure_ascii=False), 80)) if call.arguments else ""


def _tool(block: ToolBlock, *, unfolded: bool) -> Content:
    sign, style = _STATUS[block.status]
    if block.call.name in _SAID_BELOW and block.status is ToolStatus.DONE and not unfolded:
        return Content.assemble((f"{sign} ", style), (block.call.name, "bold"))
    head = Content.assemble((f"{sign} ", style), (visible(block.call.name), "bold"), " ", call_subject(block.call))
    tail: list[str] = []
    if block.diff or (block.result and isinstance(block.result.details, ChangeDetails)):
        change = block.result.details if block.result else None
        added, removed = diffs.counts(change.diff if isinstance(change, ChangeDetails) else block.diff)
        tail.append(f"+{added}/-{removed}")
    if block.status in (ToolStatus.ASKED, ToolStatus.REJECTED, ToolStatus.INTERRUPTED):
        tail.append(block.status.value)
    if block.edited:
        tail.append("edited by you")
    if block.seconds:
        tail.append(took(block.seconds))
    head = Content.assemble(head, ("  " + " · ".join(tail) if tail else "", "$text-muted"))
    lines = [head]
    if block.reason:
        lines.append(Content.assemble(("Reason: ", "$text-muted"), visible(block.reason)))
    if block.result is not None and block.status is not ToolStatus.REJECTED:
        lines.extend(_result(block.result, unfolded=unfolded))
    return Content("\n").join(lines)


def _result(result: ToolResult, *, unfolded: bool) -> list[Content]:
    summary = _details(result)
    if summary is not None and not unfolded:
        return [summary]
    lines = plain(result.content.strip("\n")).split("\n") if result.content.strip() else []
    style = "$text-error" if result.is_error else "$text-muted"
    shown = lines if unfolded or len(lines) <= FOLDED_LINES + 1 else lines[:FOLDED_LINES]
    found = [Content.styled(line, style) for line in shown]
    if len(shown) < len(lines):
        found.append(Content.styled(f"… {len(lines) - len(shown)} more lines (Ctrl+O)", "$text-muted italic"))
    return found


def _details(result: ToolResult) -> Content | None:
    """One line in place of the text that was written for the model, where the screen knows better."""
    match result.details:
        case BuildDetails(build=build):
            if build.succeeded:
                return Content.styled(f"built for {build.target} in {took(build.seconds)}", "$text-muted")
            first = build.errors[0] if build.errors else None
            text = f"{first.place}: {first.message}" if first else "build failed"
            return Content.styled(visible(shortened(text, 200)), "$text-error")
        case ReadDetails(text=text):
            return Content.styled(f"{len(text.splitlines())} lines", "$text-muted")
        case ReportDetails(report=report):
            return Content.styled(verdict_word(report), verdict_style(report))
        case ProfileDetails(profile=profile):
            return Content.styled(f"{len(profile.rows)} rows, {time_us(profile.total_us)} a call", "$text-muted")
        case ChangeDetails() if not result.is_error:
            return Content.styled(visible(shortened(result.content, 160)), "$text-muted")
        case TraceDetails() | ChangeDetails() | None:
            return None


def verdict_style(report: Report) -> str:
    """The colour that goes with a verdict."""
    if report.verdict is Verdict.REJECTED:
        return "$text-error"
    return "$text-warning" if report.verdict is Verdict.UNVERIFIED else "$text-success"


def verdict_word(report: Report) -> str:
    """`PASSED`, `REJECTED NUM_MISMATCH`."""
    return f"{report.verdict.value} {report.code.value}" if report.code else report.verdict.value


def _verdict(candidate: Candidate, *, best: bool) -> Content:
    report = candidate.report
    head = Content.assemble(
        (f"Candidate {candidate.number}", "bold"),
        f"  {visible(candidate.label)}  " if candidate.label else "  ",
        (verdict_word(report), f"{verdict_style(report)} bold"),
        ("  best so far" if best else "", "$text-success"),
    )
    match report.performance:
        case Measured() as measured if report.verdict is Verdict.PASSED:
            return Content.assemble(head, "\n", speed_lines(measured))
        case NotMeasured() | Measured():
            return Content.assemble(head, "\n", (visible(report.message), ""))


def outcome_style(outcome: Outcome) -> str:
    """The colour that goes with what an interval allows to be said."""
    return {Outcome.FASTER: "$text-success", Outcome.SLOWER: "$text-error"}.get(outcome, "$text-warning")


_THAN = {
    Outcome.FASTER: "faster than",
    Outcome.SLOWER: "slower than",
    Outcome.SAME: "within 1% of",
    Outcome.INCONCLUSIVE: "inconclusive against",
}


def speed_lines(measured: Measured) -> Content:
    """One line for each baseline, the fastest first, and the time of a call."""
    headline = measured.headline
    others = [ratio for ratio in measured.ratios if ratio.baseline != headline.baseline]
    lines = []
    for ratio in (headline, *others):
        style = outcome_style(ratio.outcome)
        number = f"{times(ratio.value)} {interval(ratio)}"
        lines.append(
            Content.assemble(
                (number, f"bold {style}" if ratio is headline else ""),
                (f"  {_THAN[ratio.outcome]} ", style),
                visible(ratio.baseline),
            )
        )
    where = " on the device" if measured.clock != "wall" else ""
    lines.append(Content.styled(f"{time_us(measured.candidate.median_us)} a call{where}", "$text-muted"))
    return Content("\n").join(lines)

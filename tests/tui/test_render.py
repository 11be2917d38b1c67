"""Rendering: text, numbers, code, diffs, tables, charts."""

import pytest
from textual.content import Content

from cuda_tui.evaluation.report import Ratio
from cuda_tui.events import MachineSampled, NoteWritten, Outcome, SessionEnded, ToolFinished, ToolStarted
from cuda_tui.export import fold
from cuda_tui.messages import Effect, ToolCall, ToolResult
from cuda_tui.state.apply import apply
from cuda_tui.state.model import State
from cuda_tui.tui.render import diff as diffs
from cuda_tui.tui.render import units
from cuda_tui.tui.render.blocks import render
from cuda_tui.tui.render.building import build_lines
from cuda_tui.tui.render.chart import Scale, chart
from cuda_tui.tui.render.correctness import correctness_lines
from cuda_tui.tui.render.highlight import code_lines, language_of
from cuda_tui.tui.render.kernels import bar, kernel_lines
from cuda_tui.tui.render.machine import machine_lines, sparkline
from cuda_tui.tui.render.markdown import markdown
from cuda_tui.tui.render.speed import speed_table
from cuda_tui.tui.render.table import Column, table
from cuda_tui.tui.render.text import plain, shortened, strip_ansi, visible
from tests import fixtures_session as fixtures
from tests.tui.scripted_source import NASTY


def text(lines: list[Content]) -> str:
    """Lines as plain text."""
    return "\n".join(line.plain for line in lines)


@pytest.fixture(scope="module")
def state() -> State:
    """The fixture session at its end."""
    return fold(fixtures.session_entries())


# ---- text


@pytest.mark.parametrize("foreign", NASTY)
def test_foreign_text_passes_through_every_renderer_unchanged(foreign: str) -> None:
    assert plain(foreign) == foreign
    assert markdown(foreign).plain == foreign
    assert [line.plain for line in code_lines(foreign, "cuda")] == [foreign]
    assert table([Column(title="x")], [[foreign]], 200)[1].plain.strip() == foreign


def test_characters_that_act_on_a_terminal_are_shown_as_escapes() -> None:
    assert visible("echo ok \x1b[2K\r rm\u202e\u200b") == r"echo ok \x1b[2K\r rm\u202e\u200b"
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\ud800") == r"\ud800"


def test_tool_output_loses_its_colours_and_shows_what_overwrote_itself_last() -> None:
    assert plain("\x1b[31merror:\x1b[0m x") == "error: x"
    assert plain("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"
    assert strip_ansi("\x1b]8;;http://x\x07link\x1b]8;;\x07") == "link"


def test_shortening_keeps_the_beginning_of_a_sentence() -> None:
    assert shortened("one two three", 8) == "one two…"


# ---- the talk


def test_last_words_of_a_session_appear_once_and_unfolding_shows_where_they_came_from() -> None:
    words = "1.45x against eager. " + "Left to the libraries: mm. " * 8
    call = ToolCall(id="c", name="finish", arguments={"summary": words})
    state = State()
    for event in (
        NoteWritten(text=f"## Result\n{words}"),
        ToolStarted(call=call, effect=Effect.READ),
        ToolFinished(call_id="c", name="finish", result=ToolResult(content=words)),
        SessionEnded(outcome=Outcome.DONE, message=words),
    ):
        state = apply(state, event, at=1.0)

    def shown(*, unfolded: bool) -> int:
        return sum(render(block, state, unfolded=unfolded).plain.count(words.strip()) for block in state.blocks)

    assert shown(unfolded=False) == 1
    assert shown(unfolded=True) == 3


# ---- numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.50 µs"), (12.34, "12.3 µs"), (999.0, "999 µs"), (1_250.0, "1.25 ms"), (2_100_000.0, "2.10 s")],
)
def test_time_has_three_digits_and_its_unit(value: float, shown: str) -> None:
    assert units.time_us(value) == shown


def test_numbers_carry_their_units() -> None:
    assert units.clock(3_723) == "1:02:03"
    assert units.took(0.84) == "0.8 s"
    assert units.took(187) == "3:07 min"
    assert units.size(1_536) == "1.5 KiB"
    assert units.short_count(12_345) == "12.3k"
    assert units.interval(Ratio(baseline="eager", value=1.6, low=1.58, high=1.66)) == "[1.58, 1.66]"
    assert units.scientific("nan") == "nan"
    assert units.element("-inf") == "-inf"


# ---- code and diffs


def test_highlighting_changes_no_character() -> None:
    lines = code_lines(fixtures.KERNEL, "cuda")
    assert "\n".join(line.plain for line in lines) == fixtures.KERNEL
    assert any(line.spans for line in lines)


def test_language_comes_from_the_file_name() -> None:
    assert [language_of(name) for name in ("a.cu", "b.cpp", "c.py", "Makefile")] == ["cuda", "cpp", "python", "text"]


def test_diff_rows_carry_the_line_numbers_of_both_sides() -> None:
    rows = diffs.rows(fixtures.MODEL_DIFF)
    assert [(row.kind, row.old, row.new) for row in rows][:6] == [
        ("file", None, None),
        ("hunk", 1, 1),
        ("context", 1, 1),
        ("context", 2, 2),
        ("added", None, 3),
        ("added", None, 4),
    ]
    removed = [row.body.plain for row in rows if row.kind == "removed"]
    assert removed[0].strip().startswith("scale = torch.rsqrt")


def test_removed_line_that_looks_like_a_header_stays_a_removed_line() -> None:
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- old comment\n+-- new comment\n select 1\n"
    assert [row.kind for row in diffs.rows(diff)] == ["file", "hunk", "removed", "added", "context"]
    assert diffs.counts(diff) == (1, 1)


def test_diff_counts_added_and_removed_lines() -> None:
    assert diffs.counts(fixtures.KERNEL_DIFF) == (16, 0)
    assert diffs.counts(fixtures.KERNEL_DIFF + fixtures.MODEL_DIFF) == (19, 2)


def test_markdown_shows_headings_lists_code_and_leaves_pointers_alone() -> None:
    shown = markdown("## Plan\n- use `rsqrt`\n- **fuse**\n```cpp\nfloat **p = **q;\n```\nuse **p = **q")
    assert shown.plain.split("\n") == ["Plan", "• use rsqrt", "• fuse", "▏ float **p = **q;", "use **p = **q"]


def test_open_fence_of_a_stream_is_plain_until_it_closes() -> None:
    open_fence = markdown("```cpp\nint a = 1;", streaming=True)
    closed = markdown("```cpp\nint a = 1;\n```", streaming=True)
    assert open_fence.plain == closed.plain
    assert len(open_fence.spans) < len(closed.spans)


# ---- tables


def test_table_drops_the_least_important_columns_and_keeps_numbers_aligned() -> None:
    columns = (Column(title="no."), Column(title="time", align="right"), Column(title="note", drop=1))
    rows = [["1", "12.3 µs", "a long remark"], ["2", "1.25 ms", "x"]]
    wide, narrow = table(columns, rows, 60), table(columns, rows, 14)
    assert "a long remark" in wide[1].plain
    assert [line.plain for line in narrow] == ["no.     time", "1    12.3 µs", "2    1.25 ms"]


def test_flexible_column_shrinks_before_anything_is_dropped() -> None:
    columns = (Column(title="kernel", flexible=True), Column(title="n", drop=1))
    lines = table(columns, [["k" * 60, "7"]], 30)
    assert lines[1].plain.endswith("…  7")
    assert lines[1].cell_length <= 30


# ---- chart


def test_scale_is_logarithmic_and_never_leaves_its_rows() -> None:
    scale = Scale(low=0.5, high=2.0, rows=11)
    assert [scale.y(value) for value in (2.0, 1.0, 0.5, 9.0, 0.01)] == [0, 5, 10, 0, 10]


def test_chart_shows_every_candidate_the_milestones_and_the_codes(state: State) -> None:
    lines = [line.plain for line in chart(state.candidates, 100, 20)]
    assert len(lines) == 20
    assert all(len(line) == 100 for line in lines)
    shown = "\n".join(lines)
    for expected in ("1.00x ┤", "1.05x ┤", "BUILD", "NUM_MISMATCH", "×", "━"):
        assert expected in shown
    assert shown.count("●") == 3 + 1  # one for each measured candidate, one in the legend
    assert [part for part in lines[-2].split() if part.isdigit()] == ["1", "2", "3", "4", "5"]


def test_best_line_climbs_at_each_new_best(state: State) -> None:
    lines = [line.plain for line in chart(state.candidates, 100, 20)]
    steps = [index for index, line in enumerate(lines[1:]) if "━━" in line]
    assert len(steps) == 2
    assert steps[0] < steps[1]


def test_chart_of_many_candidates_shows_the_newest_and_says_so(state: State) -> None:
    many = state.candidates * 20
    assert "earlier not shown" in chart(many, 90, 16)[0].plain


def test_chart_survives_a_tiny_window(state: State) -> None:
    assert len(chart(state.candidates, 20, 8)) == 8


# ---- tabs


def test_speed_table_gives_units_spread_processes_and_intervals(state: State) -> None:
    lines = [line.plain for line in speed_table(state.candidates, state.best, 160)]
    assert lines[1].split()[:2] == ["1", "BUILD"]
    best = lines[5]
    for expected in ("▸5", "PASSED", "faster", "3.02 ms", "±0.3%", "4", "1.62x [1.56, 1.68]", "2.41x [2.33, 2.49]"):
        assert expected in best


def test_correctness_tab_shows_limits_worst_elements_map_and_reason(state: State) -> None:
    shown = text(correctness_lines(state.candidates[1], 120))
    for expected in (
        "REJECTED NUM_MISMATCH",
        "4 of 5 trials passed",
        "9.5e-07",
        "out[17, 4088]",
        "0.731842",
        "the last 8 of every 4096 columns are not written",
        "inside the limit",
        "██",
    ):
        assert expected in shown


def test_candidate_that_was_not_compared_says_so(state: State) -> None:
    assert "Nothing was compared" in text(correctness_lines(state.candidates[0], 80))


def test_first_distinct_error_stands_on_top_of_the_build() -> None:
    lines = [line.plain for line in build_lines(fixtures.failed_build(), 100)]
    first = next(line for line in lines if line.startswith("error"))
    assert first.startswith("error kernels/rms_norm_swiglu.cpp:10:37  'sqrt' is not a member of 'std'")


def test_kernel_resources_name_spills() -> None:
    shown = text(build_lines(fixtures.good_build(resources=True), 140))
    assert "88 B / 96 B" in shown
    assert "none" in shown


def test_kernel_rows_have_bars_and_their_evidence(state: State) -> None:
    shown = text(kernel_lines(state.profiles, 140))
    assert "rms_norm_swiglu  authored" in shown
    assert "torch.profiler" in shown
    assert bar(0.5, 4) == "██  "
    assert bar(1.0, 2) == "██"


def test_machine_says_not_available_where_nothing_is_known() -> None:
    shown = text(machine_lines((MachineSampled(cpu_load=1.0, throttle="power cap"),), 100))
    assert "1.0 cores" in shown
    assert shown.count("n/a") == 6
    assert "now" in shown
    assert "Held down by: power cap" in shown
    assert sparkline([None, 0.0, 1.0], 3, top=1.0) == " ▁█"


def test_every_block_of_the_session_renders(state: State) -> None:
    for block in state.blocks:
        for unfolded in (False, True):
            assert render(block, state, unfolded=unfolded).plain.strip()

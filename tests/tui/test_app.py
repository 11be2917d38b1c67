"""The screen, driven by keys."""

import asyncio
from dataclasses import replace

import pytest
from textual import events
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList

from cuda_tui.agent.runner import Opening, SessionRunner
from cuda_tui.errors import UsageError
from cuda_tui.events import Approval, Decision, Entry, LineLogged, UserSpoke
from cuda_tui.session.listing import Summary
from cuda_tui.state.model import LogLine, State
from cuda_tui.tui.app import CudaTui, Options, Recording
from cuda_tui.tui.feed import LiveFeed
from cuda_tui.tui.screens.help import HelpScreen
from cuda_tui.tui.screens.live import LiveScreen
from cuda_tui.tui.screens.replay import ReplayScreen
from cuda_tui.tui.screens.start import Offer, StartScreen
from cuda_tui.tui.widgets.approval import TYPING_S, ApprovalPanel
from cuda_tui.tui.widgets.code import LogView
from cuda_tui.tui.widgets.composer import BIG_PASTE_LINES, Composer
from cuda_tui.tui.widgets.evidence import Evidence
from cuda_tui.tui.widgets.lines import Line, LineView
from cuda_tui.tui.widgets.tabstrip import TabStrip
from cuda_tui.tui.widgets.transcript import MOUNTED, Transcript
from tests import fixtures_session as fixtures
from tests.tui.scripted_source import NASTY, ScriptedSource, questions

pytestmark = pytest.mark.slow


class Steps:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Harness(CudaTui):
    """The app with a live session that needs no agent."""

    def __init__(self, source: ScriptedSource, *, monotonic: Steps | None = None) -> None:
        super().__init__(Options(clock=lambda: fixtures.START))
        self.source = source
        self.monotonic = monotonic or Steps()

    def welcome(self, *, problem: str = "") -> None:
        """Go straight to the session."""
        feed = LiveFeed(self.source, clock=self.options.clock, begin=True)
        self.push_screen(LiveScreen(feed, editor="true", monotonic=self.monotonic))


async def until_asked(pilot: Pilot[int]) -> ApprovalPanel:
    """Wait for the question, and let the half second pass in which keys do not count."""
    app = pilot.app
    assert isinstance(app, Harness)
    panel = app.screen.query_one(ApprovalPanel)
    for _ in range(50):
        await pilot.pause()
        if panel.asking:
            break
    assert panel.asking
    app.monotonic.now += 1.0
    return panel


def shown(app: CudaTui) -> str:
    """Everything on screen as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


# ---- approvals


async def test_approval_gives_the_answer_of_each_key() -> None:
    source = ScriptedSource()
    async with Harness(source).run_test(size=(100, 30)) as pilot:
        await until_asked(pilot)
        await pilot.press("a")
        await until_asked(pilot)
        await pilot.press("A")
        await until_asked(pilot)
        await pilot.press("r", *"too broad", "enter")
        await pilot.pause()
        assert [(given.decision, given.reason) for given in source.answers] == [
            (Decision.APPROVED, ""),
            (Decision.APPROVED_ALL, ""),
            (Decision.REJECTED, "too broad"),
        ]


async def test_keys_are_ignored_for_half_a_second_after_the_panel_appears() -> None:
    source, clock = ScriptedSource(), Steps()
    async with Harness(source, monotonic=clock).run_test(size=(100, 30)) as pilot:
        await until_asked(pilot)
        clock.now -= 0.6  # 0.4 s after it appeared
        await pilot.press("a", "A", "enter")
        assert source.answers == []
        clock.now += 0.2
        await pilot.press("a")
        await until_asked(pilot)
        assert len(source.answers) == 1


async def test_default_focus_is_reject_and_enter_asks_for_the_reason() -> None:
    source = ScriptedSource()
    async with Harness(source).run_test(size=(100, 30)) as pilot:
        panel = await until_asked(pilot)
        assert isinstance(pilot.app.focused, Button)
        assert pilot.app.focused.id == "reject"
        await pilot.press("enter")
        assert isinstance(pilot.app.focused, Input)
        await pilot.press("escape")
        assert not panel.has_class("-reason")
        assert source.answers == []


async def test_panel_waits_while_the_person_types() -> None:
    source, clock = ScriptedSource(script=()), Steps()
    async with Harness(source, monotonic=clock).run_test(size=(100, 30)) as pilot:
        await pilot.press(*"wai")
        panel = pilot.app.screen.query_one(ApprovalPanel)
        deciding = asyncio.ensure_future(panel.decide(questions()[0]))
        await pilot.pause()
        await pilot.press("a")
        assert isinstance(pilot.app.focused, Composer)
        assert pilot.app.focused.text == "waia"
        assert not panel.has_class("-asking")
        clock.now += TYPING_S
        panel._come_up(questions()[0])  # what its timer does
        await pilot.pause()
        assert isinstance(pilot.app.focused, Button)
        deciding.cancel()


@pytest.mark.parametrize("size", [(40, 10), (44, 11), (80, 24), (120, 40)])
async def test_buttons_and_the_end_of_a_long_command_are_reachable_at_any_size(size: tuple[int, int]) -> None:
    source = ScriptedSource(script=[questions()[1]])
    app = Harness(source)
    async with app.run_test(size=size) as pilot:
        await until_asked(pilot)
        for word in ("Reject r", "Approve a", "Edit e", "All A"):
            assert word in shown(app)
        await pilot.press("end")
        await pilot.pause()
        assert "; rm -rf build" in shown(app)
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        for word in ("Reject r", "Approve a", "Edit e", "All A"):
            assert word in shown(app)


async def test_control_characters_of_a_command_are_shown_as_escapes() -> None:
    app = Harness(ScriptedSource(script=[questions()[2]]))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_asked(pilot)
        assert r"echo ok \x1b[2K\r rm -rf build \u202e" in shown(app)


# ---- composing


async def test_enter_sends_and_ctrl_j_breaks_the_line() -> None:
    source = ScriptedSource(script=())
    async with Harness(source).run_test(size=(80, 24)) as pilot:
        await pilot.press(*"one", "ctrl+j", *"two", "enter")
        await pilot.pause()
        assert source.said == ["one\ntwo"]


async def test_paste_is_one_block_and_never_sends_or_runs_a_command() -> None:
    source = ScriptedSource(script=())
    app = Harness(source)
    async with app.run_test(size=(80, 24)) as pilot:
        composer = app.screen.query_one(Composer)
        composer.post_message(paste("line 1\nline 2\n/quit\nline 4\n"))
        await pilot.press("ctrl+b", "ctrl+s", "ctrl+q")
        assert composer.text == "line 1\nline 2\n/quit\nline 4\n"
        assert source.said == []
        assert app.is_running


async def test_very_long_paste_is_a_stand_in_that_is_sent_in_full() -> None:
    source = ScriptedSource(script=())
    app = Harness(source)
    long = "\n".join(f"frame {number}" for number in range(BIG_PASTE_LINES + 10))
    async with app.run_test(size=(80, 24)) as pilot:
        composer = app.screen.query_one(Composer)
        composer.post_message(paste(long))
        await pilot.pause()
        assert composer.text == f"[paste 1: {BIG_PASTE_LINES + 10} lines]"
        await pilot.press("enter")
        await pilot.pause()
        assert source.said == [long]


def paste(text: str) -> events.Paste:
    """A bracketed paste."""
    return events.Paste(text)


async def test_commands_run_and_wrong_ones_say_what_exists() -> None:
    source = ScriptedSource(script=())
    app = Harness(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"/approve auto", "enter")
        await pilot.press(*"/tab diff", "enter")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, LiveScreen)
        assert screen.feed.state.approval is Approval.AUTO
        assert screen.pane == "diff"
        await pilot.press(*"/theme nord", "enter")
        assert app.theme == "nord"
        await pilot.press(*"/help", "enter")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert source.said == []


# ---- foreign text


async def test_foreign_strings_appear_unchanged_in_transcript_log_and_toast() -> None:
    source = ScriptedSource(script=[LineLogged(source="build", text=text) for text in NASTY])
    app = Harness(source)
    async with app.run_test(size=(120, 50), notifications=True) as pilot:
        await pilot.press("f3")
        await pilot.pause(0.2)
        for text in NASTY:
            app.notify(text, title=text, markup=False)
            await pilot.pause()
            assert shown(app).count(text) >= 4, text
            app.clear_notifications()


# ---- leaving


async def test_first_ctrl_c_stops_the_step_and_the_second_leaves_with_nothing_running() -> None:
    source = ScriptedSource()
    app = Harness(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_asked(pilot)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not source.running
        assert not source.closed
        await pilot.press("ctrl+c")
        await pilot.pause()
    assert source.closed
    assert app.return_value == 0


async def test_crash_of_the_screen_leaves_no_session_running() -> None:
    source = ScriptedSource()
    app = Harness(source)
    with pytest.raises(ZeroDivisionError):
        await crashed(app)
    assert source.closed


async def crashed(app: Harness) -> None:
    """Run the app into a fault of its own."""
    async with app.run_test(size=(80, 24)) as pilot:
        await until_asked(pilot)
        app.call_later(lambda: 1 // 0)
        await pilot.pause()


async def test_tab_with_news_stands_out_until_it_is_looked_at() -> None:
    app = CudaTui(Options(), start=Recording(records=fixtures.session_entries()))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n")
        await pilot.pause()
        strip = app.screen.query_one("#evidence-tabs", TabStrip)
        assert "correctness" in strip.marked
        assert "speedup" not in strip.marked
        await pilot.press("f4")
        assert "correctness" not in strip.marked


async def test_comparison_of_an_earlier_candidate_can_be_brought_back() -> None:
    app = CudaTui(Options(), start=Recording(records=fixtures.session_entries()))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("end", "f4")
        await pilot.pause()
        assert "Candidate 5  streaming stores" in shown(app)
        await pilot.press(*["ctrl+pageup"] * 3)
        await pilot.pause()
        assert "the last 8 of every 4096 columns are not written" in shown(app)
        await pilot.press(*["ctrl+pagedown"] * 3)
        await pilot.pause()
        assert "Candidate 5  streaming stores" in shown(app)


async def test_escape_stops_the_step() -> None:
    source = ScriptedSource()
    async with Harness(source).run_test(size=(80, 24)) as pilot:
        await until_asked(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert not source.running


# ---- layout


async def test_narrow_window_shows_one_pane_and_wide_window_shows_both() -> None:
    app = CudaTui(Options(), start=Recording(records=fixtures.session_entries()))
    async with app.run_test(size=(80, 24)) as pilot:
        transcript, evidence = app.screen.query_one(Transcript), app.screen.query_one(Evidence)
        await pilot.press("f5")
        await pilot.pause()
        assert (transcript.display, evidence.display) == (False, True)
        await pilot.press("f2")
        assert (transcript.display, evidence.display) == (True, False)
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        assert transcript.region.width > 40
        assert evidence.region.width > transcript.region.width


async def test_transcript_mounts_a_bounded_number_of_blocks() -> None:
    log = tuple(Entry(seq=n, at=float(n), event=UserSpoke(text=f"message {n}")) for n in range(600))
    app = CudaTui(Options(), start=Recording(records=log))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end")
        await pilot.pause(0.2)
        transcript = app.screen.query_one(Transcript)
        assert len(transcript.query(".block-user")) == MOUNTED
        assert "message 599" in shown(app)
        await pilot.press("home")
        await pilot.pause(0.2)
        assert len(transcript.query(".block-user")) == 0


async def test_view_without_room_asks_for_no_line_of_what_it_showed_before() -> None:
    app = CudaTui(Options(), start=Recording(records=()))
    async with app.run_test(size=(80, 24)) as pilot:
        view = LogView()
        await app.screen.mount(view)
        view.lines = tuple(LogLine(source="build", text=f"line {number}") for number in range(12))
        await pilot.pause()
        view.styles.width = 0
        await pilot.pause()
        view.lines = view.lines[:2]
        assert not view.render_line(11).text.strip()
        view.styles.width = 40
        await pilot.pause()
        assert "line 1" in view.render_line(1).text


async def test_line_views_render_only_what_is_on_screen() -> None:
    class Many(LineView):
        """Counts."""

        asked = 0

        def line_count(self) -> int:
            """Many."""
            return 5_000

        def plain(self, index: int) -> str:
            """A line."""
            return f"line {index}"

        def line(self, index: int) -> Line:
            """A line that was rendered."""
            self.asked += 1
            return Line(body=Content(self.plain(index)))

    app = CudaTui(Options(), start=Recording(records=()))
    async with app.run_test(size=(80, 24)) as pilot:
        view = Many()
        await app.screen.mount(view)
        await pilot.pause()
        assert 0 < view.asked < 200


# ---- replay


async def test_replay_plays_steps_jumps_and_seeks() -> None:
    app = CudaTui(Options(), start=Recording(records=fixtures.session_entries(), speed=float("inf"), play=True))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        await screen.playback.rest()
        await pilot.pause()
        assert screen.playback.position == screen.playback.total
        await pilot.press("home")
        assert screen.state == State()
        await pilot.press("n", "n")
        assert screen.state.candidates[-1].number == 2
        await pilot.press("left")
        assert len(screen.state.candidates) == 1
        await pilot.press("home", "p")
        await pilot.pause()
        assert screen.query_one(ApprovalPanel).has_class("-asking")
        await pilot.press("right")
        await pilot.pause()
        assert not screen.query_one(ApprovalPanel).has_class("-asking")
        await pilot.press("plus")
        assert screen.playback.speed == float("inf")
        await pilot.press("minus")
        assert screen.playback.speed == 16.0


# ---- start


async def failing(opening: Opening) -> SessionRunner:
    """A session that cannot be opened."""
    raise UsageError(f"no such file: {opening.target}", hint="name another")


async def test_every_session_takes_one_line_of_the_list_however_narrow_the_screen() -> None:
    damaged = tuple(
        Summary(id=f"20261130-{number:06}-4f1c", path="x", model="anthropic:claude", problem="its first event is torn")
        for number in range(30)
    )
    app = CudaTui(Options(sessions=lambda: damaged))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        sessions = app.screen.query_one(OptionList)
        assert sessions.virtual_size.height == len(damaged)


async def test_start_screen_offers_the_devices_and_begins_with_those_that_are_named() -> None:
    begun: list[Opening] = []

    async def remember(opening: Opening) -> SessionRunner:
        begun.append(opening)
        raise UsageError("stop here")

    found = Offer(default="cuda", devices={"cuda:0": "NVIDIA H200", "cpu": ""}, target="sm_90a", note="a note [/x]")
    app = CudaTui(replace(Options(), open_session=remember, offer=lambda: found))
    async with app.run_test(size=(100, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "here: cuda:0 (NVIDIA H200), cpu" in shown(app)
        assert "sm_90a, the GPU's own" in shown(app)
        assert "a note [/x]" in shown(app)
        await pilot.press(*"m.py", "tab", "tab", *"cuda:1", "tab", *"80,90a", "enter")
        await pilot.pause(0.2)
    assert (begun[0].target, begun[0].device, begun[0].architectures) == ("m.py", "cuda:1", "80,90a")


async def test_session_that_cannot_be_opened_leads_back_to_the_start_screen_with_the_reason() -> None:
    app = CudaTui(replace(Options(), open_session=failing))
    async with app.run_test(size=(80, 24)) as pilot:
        assert isinstance(app.screen, StartScreen)
        await pilot.press(*"missing[/N].py", "enter")
        await pilot.pause(0.2)
        assert isinstance(app.screen, StartScreen)
        assert "no such file: missing[/N].py" in shown(app)
        assert "name another" in shown(app)


async def test_every_action_is_in_the_command_palette() -> None:
    app = CudaTui(Options(), start=Recording(records=fixtures.session_entries()))
    async with app.run_test(size=(80, 24)):
        titles = {command.title for command in app.get_system_commands(app.screen)}
    assert {"Next verdict", "Play or pause", "Speedup", "Leave", "Next theme", "Export a Markdown report"} <= titles

"""What the shell shows after the screen is gone."""

from pathlib import Path

from cuda_tui.tui.farewell import farewell

SESSION = Path(__file__).parent.parent / "sessions" / "rms_norm_swiglu.jsonl"


def test_farewell_names_the_result_the_workspace_and_the_way_back() -> None:
    text = farewell(SESSION)
    result, workspace, session = text.split("\n")
    assert "best is candidate" in result
    assert "against" in result
    assert workspace.startswith("Workspace  ")
    assert "cuda-tui replay " in session


def test_farewell_of_a_log_that_is_gone_names_its_path(tmp_path: Path) -> None:
    assert farewell(tmp_path / "gone.jsonl") == f"Session log: {tmp_path / 'gone.jsonl'}"

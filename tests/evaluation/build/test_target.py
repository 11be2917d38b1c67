import pytest

from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build.target import spelled


@pytest.mark.parametrize("text", ["9.0", "sm_90", "90", "compute_90"])
def test_every_usual_spelling_is_one_target(text: str) -> None:
    assert spelled(text) == ("sm_90",)


def test_suffix_ptx_and_lists_are_kept() -> None:
    assert spelled("90a") == ("sm_90a",)
    assert spelled("8.0;8.6+PTX, sm_120") == ("sm_80", "sm_86+PTX", "sm_120")


@pytest.mark.parametrize("text", ["fast", "9", "9.9.9", "1000", ""])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        spelled(text)

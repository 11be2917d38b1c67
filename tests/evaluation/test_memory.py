from cuda_tui.evaluation.memory import CONTEXT_BYTES, memory_problem, needed_bytes

GIB = 1 << 30


def test_each_process_brings_a_context_the_state_and_its_sets_of_inputs() -> None:
    one = needed_bytes(state_bytes=GIB, draw_bytes=GIB, processes=1)
    two = needed_bytes(state_bytes=GIB, draw_bytes=GIB, processes=2)
    assert two - one == CONTEXT_BYTES + GIB + 3 * GIB


def test_small_inputs_are_rotated_until_they_leave_the_cache() -> None:
    tiny = needed_bytes(state_bytes=0, draw_bytes=1000, processes=1, l2_bytes=60 << 20)
    assert tiny > CONTEXT_BYTES + 3 * (60 << 20)


def test_model_that_fits_is_no_problem_and_neither_is_what_nobody_knows() -> None:
    assert memory_problem(140 * GIB, state_bytes=GIB, draw_bytes=GIB) == ""
    assert memory_problem(None, state_bytes=1000 * GIB, draw_bytes=GIB) == ""


def test_model_that_does_not_fit_is_told_with_what_still_works() -> None:
    measured = memory_problem(30 * GIB, state_bytes=2 * GIB, draw_bytes=GIB)
    assert measured.startswith("30.0 GiB are free on the GPU, and measuring takes about")
    assert "verifying alone fits" in measured
    assert "not even verifying fits" in memory_problem(4 * GIB, state_bytes=2 * GIB, draw_bytes=GIB)

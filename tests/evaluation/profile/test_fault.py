"""Where a fault happened, as one clause; from memcheck, from an assert's own words, or from the Python stacks."""

from collections.abc import Callable

import pytest

from cuda_tui.evaluation.profile import fault
from cuda_tui.evaluation.profile.sanitizer import Sanitizer
from cuda_tui.evaluation.report import Code

from .conftest import HONEST, Bench

ASSERTED = """\
Loading
/tmp/x/kernels/scale.cu:7: void scale_kernel(const float *, float *, int): block: [3,0,0], thread: [31,0,0] \
Assertion `i < n` failed.
/tmp/x/kernels/scale.cu:7: void scale_kernel(const float *, float *, int): block: [0,0,0], thread: [0,0,0] \
Assertion `i < n` failed.
"""
STACKS = """\
Timeout (0:00:10)!
Thread 0x00007f (most recent call first):
  File "/usr/lib/python3/torch/cuda/streams.py", line 105 in synchronize
  File "/run/candidate-3/model_new.py", line 9 in forward
  File "/run/worker/solo.py", line 62 in run
"""


def test_fault_is_one_clause_for_a_verdict() -> None:
    place = fault.FaultPlace(evidence="memcheck", kind="Invalid read", kernel="bad", file="kernels/bad.cu", line=12)
    assert place.sentence == "in bad (kernels/bad.cu:12): Invalid read (by memcheck)"
    nowhere = fault.FaultPlace(evidence="blocking launches", kind="CUDA error")
    assert nowhere.sentence.startswith("in an unknown place")


def test_assert_in_a_kernel_tells_its_kernel_line_and_condition() -> None:
    place = fault.of_assertion(ASSERTED)
    assert place is not None
    assert (place.kernel, place.file, place.line, place.kind) == (
        "scale_kernel", "kernels/scale.cu", 7, "assert(i < n)",
    )  # fmt: skip
    assert fault.of_assertion("nothing of the kind") is None


def test_call_that_does_not_return_is_placed_in_the_candidates_own_file() -> None:
    place = fault.of_stacks(STACKS)
    assert place is not None
    assert place.sentence.startswith("at model_new.py:9: the call that does not return")
    assert fault.of_stacks('File "/x/other.py", line 3 in forward') is None


@pytest.mark.slow
def test_hang_is_placed_without_memcheck(make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault, "BLOCKING_LIMIT_S", 4.0)
    bench = make_bench(name="compute-sanitizer", script="exit 9")
    hangs = HONEST.replace("return torch.relu", "import time\n        time.sleep(600)\n        return torch.relu")
    side = bench.solo.candidate_side(bench.candidate(hangs), bench.reference.draw())
    place = fault.find(Sanitizer(bench.solo), side, Code.HANG)
    assert place is not None
    assert place.file == "model_new.py"
    assert bench.runs == 1

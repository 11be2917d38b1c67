"""Faults of kernels on a real GPU: each has its verdict, names its kernel, and harms nobody after it."""

from collections.abc import Callable

import pytest

from cuda_tui.evaluation.report import Code, Verdict
from cuda_tui.nvml import Nvml

from .conftest import Bench, say
from .planted import HONEST, MODEL, PLANTED, SOURCES, TIME_LIMIT_S, Planted, model_new

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SLACK_BYTES = 256 << 20


@pytest.fixture(scope="module")
def scale(make_bench: Callable[..., Bench]) -> Bench:
    """The model that the faults are planted in, with low time limits."""
    return make_bench(MODEL, init=None, time_limit_s=TIME_LIMIT_S)


def memory_used() -> int | None:
    """Bytes in use on the first GPU, None where NVML does not say."""
    nvml = Nvml.open()
    return nvml.read(0).memory_used_bytes if nvml.count else None


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_fault_is_rejected_with_its_place_and_the_next_candidate_is_unharmed(
    scale: Bench, make_bench: Callable[..., Bench], planted: Planted
) -> None:
    assert scale.evaluate(HONEST, "verify", **SOURCES).verdict is Verdict.PASSED
    before = memory_used()
    bench = make_bench(MODEL, init=None, **planted.task) if planted.task else scale
    report = bench.evaluate(planted.source, "verify", **SOURCES)
    say("\n", planted.name, report.code, report.message)
    assert report.verdict is Verdict.REJECTED
    assert report.code is planted.code
    assert all(word in report.message for word in planted.words)
    assert planted.place in report.message
    after = memory_used()
    assert before is None or after is None or after <= before + SLACK_BYTES
    again = scale.evaluate(HONEST, "verify", **SOURCES)
    assert again.verdict is Verdict.PASSED, again.message


def test_fault_of_the_timed_calls_alone_is_a_fault_and_not_a_failed_measurement(scale: Bench) -> None:
    forward = (
        "        bad = torch.cuda.is_current_stream_capturing()\n"
        "        return cuda_extension.scale(x, 1 if bad else 0)"
    )
    report = scale.evaluate(model_new(forward), "measure", **SOURCES)
    say("\nwhile timed", report.code, report.message)
    assert report.code is Code.MEM_FAULT
    assert "while it was timed" in report.message
    assert scale.evaluate(HONEST, "verify", **SOURCES).verdict is Verdict.PASSED

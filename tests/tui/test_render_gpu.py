"""Rendering of what only a GPU has: device time by its clock, conditions, readings that are missing."""

import msgspec
import pytest
from textual.content import Content

from cuda_tui.evaluation.report import GpuConditions, Measured
from cuda_tui.events import MachineSampled
from cuda_tui.export import fold
from cuda_tui.state.model import State
from cuda_tui.tui.render.machine import machine_lines
from cuda_tui.tui.render.speed import measurement_lines, side_lines
from tests import fixtures_session as fixtures
from tests.gpu_session import CONDITIONS, gpu_measured


def text(lines: list[Content]) -> str:
    """Lines as plain text."""
    return "\n".join(line.plain for line in lines)


@pytest.fixture(scope="module")
def state() -> State:
    """The fixture session at its end."""
    return fold(fixtures.session_entries())


def test_reason_of_a_missing_reading_stands_beside_it_as_long_as_it_is_missing() -> None:
    told = MachineSampled(gpu_name="GPU", gpu_clock_mhz=1980, gpu_missing={"power": "Not [/x] Supported"})
    later = MachineSampled(gpu_name="GPU", gpu_clock_mhz=1410, throttle="thermal (hardware)")
    shown = text(machine_lines((told, later, MachineSampled(gpu_name="GPU", gpu_clock_mhz=1980)), 100))
    assert "n/a  Not [/x] Supported" in next(line for line in shown.splitlines() if "GPU power" in line)
    assert "·█·  1 of 3" in shown
    assert "earlier" in shown
    without = text(machine_lines((MachineSampled(gpu_missing={"gpu": "NVML: no library"}),), 100))
    assert without.count("n/a  NVML: no library") == 5


def on_gpu_measured(state: State, gpu: GpuConditions | None = CONDITIONS) -> Measured:
    measured = state.candidates[-1].measured
    assert measured is not None
    return gpu_measured(measured, gpu=gpu)


def test_speed_tab_of_a_gpu_shows_device_time_by_its_clock_and_wall_time_beside_it(state: State) -> None:
    measured = on_gpu_measured(state)
    shown = text(side_lines(measured, 5, 100))
    assert "device time, CUDA graphs, certified" in shown
    assert [line.split("  ")[0] for line in shown.splitlines()[2:7]] == [
        "candidate", "eager", "compile", "compile max-autotune", "compile reduce-overhead",
    ]  # fmt: skip
    reduce_overhead = shown.splitlines()[6]
    assert reduce_overhead.count("–") == 4  # no device time, spread, ratio or outcome: by the wall clock alone
    assert "11.8 µs" in reduce_overhead
    weaker = msgspec.structs.replace(measured, clock="events", certified=False)
    assert "queued batches: weaker evidence, not certified" in text(side_lines(weaker, 5, 100))


def test_speed_tab_of_a_gpu_says_what_the_gpu_did_and_what_is_not_known(state: State) -> None:
    def lines(gpu: GpuConditions | None) -> str:
        report = msgspec.structs.replace(state.candidates[-1].report, performance=on_gpu_measured(state, gpu))
        return text(measurement_lines((msgspec.structs.replace(state.candidates[-1], report=report),), 100))

    assert "NVIDIA H200: 1230 to 1980 MHz, up to 690 W, 61 °C, THROTTLED: power cap, 1 other process" in lines(
        CONDITIONS
    )
    assert "The GPU reached its power limit" in lines(CONDITIONS)
    assert "GPU conditions unknown" in lines(None)
    partial = GpuConditions(name="MIG", clock_mhz=(1980, 1980), samples=1)
    assert "MIG: 1980 MHz, power n/a, heat n/a, not throttled" in lines(partial)


@pytest.mark.parametrize("width", [60, 77, 117, 197])
def test_table_of_sides_fits_its_room(state: State, width: int) -> None:
    assert all(line.cell_length <= width for line in side_lines(on_gpu_measured(state), 5, width)[1:])

"""From a worker's account to rows: attribution by kernel, occupancy, the roof, and what is not claimed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cuda_tui.evaluation.profile.names import OwnKernels
from cuda_tui.evaluation.profile.ncu import parse
from cuda_tui.evaluation.profile.roof import with_ceilings, with_roof
from cuda_tui.evaluation.profile.rows import from_resources, gpu_profile, with_counters
from cuda_tui.evaluation.profiler import authored_share, to_profile
from cuda_tui.evaluation.report import BuildReport, Ceiling, KernelResources
from cuda_tui.evaluation.worker.profiling import _device_events, timeline

from .test_ncu_parse import page

SILU = KernelResources(kernel="silu(float const*, float*, long)", architecture="sm_90a", registers=40)
BUILD = BuildReport(succeeded=True, seconds=1.0, target="sm_90a", toolchain="nvcc", resources=(SILU,))
L2 = 50 << 20
CEILINGS = (
    Ceiling(name="copy", value=4000.0, spread=0.01, samples=7),
    Ceiling(name="fp32", value=50_000.0, spread=0.01, samples=7),
    Ceiling(name="tf32", value=400_000.0, spread=0.01, samples=7),
    Ceiling(name="bf16", value=800_000.0, spread=0.01, samples=7),
)


def event(name: str, ts: float, dur: float, *, cat: str = "kernel", external: int = 1, **more: Any) -> dict[str, Any]:
    args = {"External id": external, "grid": [132, 2, 1], "block": [256, 1, 1], "stream": 7}
    args |= {"registers per thread": 40, "shared memory": 0} | more
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def two_calls() -> list[dict[str, Any]]:
    """Each call: an operator's kernel, 5 µs idle, the candidate's kernel, then a copy right behind it."""
    found = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1, "args": {"External id": 2}}]
    for start in (0.0, 100.0):
        found.append(event("gemm", start, 30.0, external=2))
        found.append(event("silu(float const*, float*, long)", start + 35, 10.0, external=3))
        found.append(event("Memcpy DtoD (Device -> Device)", start + 45, 5.0, cat="gpu_memcpy", external=4))
    return found


def account(**more: Any) -> dict[str, Any]:
    device = {"name": "H200", "uuid": "u", "capability": [9, 0], "sms": 132, "l2_bytes": 1, "torch": "2", "tf32": False}
    found = timeline(two_calls(), 2, wall_us=90.0)
    return {"rows": [], "device_events": 3, "namespaces": [], "device": device} | found | more


def test_time_line_is_one_calls_and_names_its_gaps() -> None:
    profile = gpu_profile(account(), subject="candidate", own=OwnKernels.of(BUILD))
    line = profile.timeline
    assert line is not None
    assert (line.busy_us, line.wall_us, line.launches, line.copies, line.copy_us) == (45.0, 90.0, 2, 1, 5.0)
    assert line.busy_share == 0.5
    (largest, *_) = line.gaps
    assert (largest.after, largest.us) == ("gemm", 5.0)


def test_kernels_that_overlap_are_not_counted_twice() -> None:
    found = timeline([event("a", 0.0, 10.0), event("b", 5.0, 10.0)], 1, wall_us=20.0)
    assert found["timeline"]["busy_us"] == 15.0


def test_authored_is_what_the_build_made_whatever_operator_launched_it() -> None:
    profile = to_profile(account(namespaces=["cuda_tui_x"]), subject="candidate", device="cuda", build=BUILD)
    assert [(row.name.partition("(")[0], row.authored) for row in profile.rows] == [
        ("gemm", False),
        ("silu", True),
        ("Memcpy DtoD ", False),
    ]
    assert round(authored_share(profile), 3) == round(10 / 45, 3)
    without = to_profile(account(namespaces=["cuda_tui_x"]), subject="candidate", device="cuda")
    assert authored_share(without) == 0.0


def test_rows_carry_launch_shape_operator_and_occupancy() -> None:
    row = gpu_profile(account(), subject="candidate", own=OwnKernels.of(BUILD)).rows[0]
    assert (row.operator, row.grid, row.block, row.registers) == ("aten::mm", 264, 256, 40)
    assert row.occupancy is not None
    assert (row.occupancy.theoretical, row.occupancy.limiter, row.occupancy.evidence) == (
        0.75,
        "registers",
        "launch shape",
    )
    assert row.occupancy.waves == 264 / (6 * 132)


def test_without_device_events_there_are_no_rows_and_no_percentages() -> None:
    silent = account(kernels=[], device_events=0)
    profile = to_profile(silent, subject="reference", device="cuda:1")
    assert (profile.rows, profile.timeline, profile.total_us) == ((), None, 0.0)
    assert "no GPU activity recorded" in profile.notes


def test_resources_alone_make_rows_without_times() -> None:
    (row,) = from_resources("candidate", (SILU,)).rows
    assert (row.evidence, row.registers, row.share, row.authored) == ("ptxas", 40, 0.0, True)
    assert row.occupancy is not None
    assert (row.occupancy.theoretical, row.occupancy.evidence) == (0.75, "ptxas, at 256 threads a block")


def test_counters_give_the_share_of_the_roof_over_ncus_own_time() -> None:
    profile = gpu_profile(account(), subject="candidate", own=OwnKernels.of(BUILD))
    counted = with_counters(profile, parse(page("silu(const float *, float *, long)")))
    row = with_ceilings(counted, CEILINGS, l2_bytes=L2).rows[1]
    assert row.bytes_moved == 134_217_728
    assert row.roofline_share is not None
    assert abs(row.roofline_share - 134_217_728 / 4000.0 / 1e3 / 30.592) < 1e-9
    assert row.bound == "memory"


def test_counters_of_one_instance_of_a_template_are_not_given_to_another() -> None:
    events = [event("void f<4>(float const*)", 0.0, 9.0), event("void f<8>(float const*)", 20.0, 8.0)]
    profile = gpu_profile(account(**timeline(events, 1, 50.0)), subject="candidate", own=OwnKernels(()))
    four, eight = with_counters(profile, parse(page("f<(int)4>(const float *)"))).rows
    assert four.counters is not None
    assert eight.counters is None
    other = with_counters(profile, parse(page("f<spelled otherwise>(float)")))
    assert all(row.counters is None for row in other.rows), "which of the two it is cannot be told"


def trace(dtype: str = "float32") -> dict[str, Any]:
    node = {"op": "aten.linear.default", "name": "linear", "bytes_read": 40_000_000, "bytes_written": 20_000_000}
    node |= {"flop": 1_000_000_000, "outputs": [{"bytes": 20_000_000, "dtype": dtype}]}
    given = {"inputs": [{"bytes": 40_000_000}], "parameters": []}
    return {"nodes": [node], "outputs": {"ref": "linear"}, "totals": {}, **given}


def test_trace_gives_the_floor_of_the_call_and_the_roof_of_a_kernel_that_does_an_operator_alone() -> None:
    profile = gpu_profile(account(), subject="candidate", own=OwnKernels.of(BUILD))
    roofed = with_roof(profile, CEILINGS, trace=trace(), tf32=False, l2_bytes=L2)
    assert (roofed.floor_us, roofed.floor_bound) == (20.0, "compute")
    gemm, silu, _ = roofed.rows
    assert (gemm.bound, gemm.roofline_share, gemm.evidence) == ("compute", 20.0 / 30.0, "torch.profiler, trace")
    assert silu.roofline_share is None, "nothing is known of the bytes of an authored kernel without counters"
    assert (roofed.peak_bandwidth_gbs, roofed.peak_gflops) == (4000.0, 50_000.0)


def test_rate_of_products_follows_type_and_tf32() -> None:
    profile = gpu_profile(account(), subject="candidate", own=OwnKernels.of(BUILD))
    assert with_roof(profile, CEILINGS, trace=trace(), tf32=True, l2_bytes=L2).floor_bound == "memory"
    half = with_roof(profile, CEILINGS, trace=trace("bfloat16"), tf32=False, l2_bytes=L2)
    assert (half.floor_us, half.floor_bound) == (15.0, "memory")


def test_kernel_that_shares_its_operator_with_another_gets_no_roof_from_the_trace() -> None:
    events = [*two_calls(), event("splitk_reduce", 60.0, 2.0, external=2)]
    found = account(**timeline(events, 2, wall_us=90.0))
    profile = gpu_profile(found, subject="candidate", own=OwnKernels.of(BUILD))
    assert all(
        row.roofline_share is None for row in with_roof(profile, CEILINGS, trace=trace(), tf32=False, l2_bytes=L2).rows
    )


class Unexportable:
    """A recording that torch cannot export."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": [', encoding="utf-8")

    def events(self) -> list[Any]:
        def one(name: str, start: float, end: float, device: str) -> Any:
            return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start, end=end), device_type=device)

        on, off = "DeviceType.CUDA", "DeviceType.CPU"
        return [one("aten::mm", 0, 9, off), one("gemm", 1, 4, on), one("Memcpy DtoD (Device -> Device)", 5, 6, on)]


def test_trace_that_cannot_be_read_still_gives_kernels_with_their_times() -> None:
    events = _device_events(Unexportable())  # type: ignore[arg-type]  # as much of a profile as is used
    found = timeline(events, 1, wall_us=10.0)
    assert [(row["name"], row["device_us"], row["block"]) for row in found["kernels"]] == [
        ("gemm", 3, 0),
        ("Memcpy DtoD (Device -> Device)", 1, 0),
    ]
    assert (found["timeline"]["launches"], found["timeline"]["copies"]) == (1, 1)

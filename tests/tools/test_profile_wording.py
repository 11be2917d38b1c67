"""A GPU profile as a model reads it: the first line says what to look at first."""

import msgspec

from cuda_tui.evaluation.profile.rows import from_resources
from cuda_tui.evaluation.profile.sanitizer import Checked, Finding
from cuda_tui.evaluation.report import (
    Ceiling,
    Counters,
    Gap,
    KernelResources,
    KernelRow,
    Occupancy,
    Profile,
    Stall,
    Timeline,
)
from cuda_tui.tools.wording import checked_text, profile_text

TIMELINE = Timeline(
    wall_us=100.0, busy_us=90.0, launches=3, gaps=(Gap(after="gemm", before="silu(float const*)", us=4.0),)
)
ROW = KernelRow(
    name="void silu<4>(float const*, float*, long)",
    calls=1,
    total_us=56.0,
    share=0.62,
    authored=True,
    bound="memory",
    bytes_moved=67_108_864,
    roofline_share=0.31,
    evidence="torch.profiler, ncu",
    block=256,
    grid=4096,
    registers=128,
    occupancy=Occupancy(theoretical=0.25, limiter="registers", blocks_per_sm=2, achieved=0.24, waves=15.5),
    counters=Counters(
        time_us=54.0,
        memory_share=0.4,
        compute_share=0.2,
        l2_hit=0.5,
        sectors_per_load=4.0,
        stalls=(Stall(reason="long scoreboard", share=0.7),),
    ),
)  # fmt: skip
OTHER = KernelRow(name="gemm", calls=2, total_us=34.0, share=0.38, operator="aten::mm")
PROFILE = Profile(
    subject="candidate",
    rows=(ROW, OTHER),
    total_us=90.0,
    timeline=TIMELINE,
    ceilings=(
        Ceiling(name="copy", value=4250.0, spread=0.01, samples=7),
        Ceiling(name="bf16", value=790_000.0, spread=0.01, samples=7),
    ),
    floor_us=40.0,
    floor_bound="memory",
)


def first(profile: Profile) -> str:
    return profile_text(profile).splitlines()[0]


def with_row(**changes: object) -> Profile:
    row = msgspec.structs.replace(ROW, **changes)
    return msgspec.structs.replace(PROFILE, rows=(row, OTHER))


def test_first_line_names_the_kernel_its_roof_and_its_limit() -> None:
    assert first(PROFILE) == (
        "62% of the time is silu<4>, which reaches 31% of copy bandwidth; registers limit occupancy to 25%. "
        "The call's bytes alone take 40.0 us, its kernels 90.0 us"
    )


def test_idle_gpu_comes_before_any_kernel() -> None:
    idle = msgspec.structs.replace(TIMELINE, wall_us=300.0)
    text = first(msgspec.structs.replace(PROFILE, timeline=idle))
    assert text == (
        "the GPU works 30% of the time: a call of 3 launches takes 300 us, 90 us of it on the GPU; "
        "launch less often, or use a graph"
    )


def test_copies_come_before_kernels() -> None:
    copying = msgspec.structs.replace(TIMELINE, copies=2, copy_us=40.0)
    assert first(msgspec.structs.replace(PROFILE, timeline=copying)).startswith("44% of the GPU's time are copies")


def test_kernel_at_its_roof_is_said_to_be_done() -> None:
    assert "at its roof: only moving fewer bytes helps" in first(with_row(roofline_share=0.9))


SGEMM = "cutlass_80_simt_sgemm_256x128_8x4_nn_align1"
GEMM = KernelRow(
    name=f"void cutlass::Kernel2<{SGEMM}>({SGEMM}::Params)",
    calls=1,
    total_us=344.0,
    share=0.95,
    bound="compute",
    roofline_share=0.84,
    operator="aten::mm",
)
LIBRARY = "95% of the time is cutlass_80_simt_sgemm_256x128_8x4_nn (not the candidate's own), which reaches 84% of its "
LIBRARY += "compute peak; at its roof; "


def after_gemm(*others: KernelRow, wall_us: float = 366.0) -> str:
    line = msgspec.structs.replace(TIMELINE, wall_us=wall_us, busy_us=360.0)
    total = 344.0 + sum(row.total_us for row in others)
    profile = msgspec.structs.replace(PROFILE, rows=(GEMM, *others), total_us=total, timeline=line, floor_us=None)
    text = first(profile)
    assert text.startswith(LIBRARY)
    return text.removeprefix(LIBRARY)


def test_library_product_at_its_roof_is_said_so_and_the_next_gain_is_named() -> None:
    slow = msgspec.structs.replace(ROW, total_us=16.0, share=0.05, roofline_share=0.5)
    assert after_gemm(slow) == (
        "next: silu<4>, 16.0 us at 50% of copy bandwidth: at most 8.0 us (2% of the call) to gain"
    )
    unknown = msgspec.structs.replace(slow, roofline_share=None)
    assert "whose roof is not known: at most 16.0 us" in after_gemm(unknown)
    good = msgspec.structs.replace(slow, roofline_share=0.97)
    assert after_gemm(good) == "next: silu<4>, 16.0 us (4%), at the roof too: only fusing helps"
    assert "the other 2 kernels, 32.0 us (9%), at the roof too" in after_gemm(good, good)
    assert after_gemm() == "nothing else takes time"


def test_idle_time_beside_a_product_at_its_roof_is_the_next_gain_where_it_is_the_largest() -> None:
    good = msgspec.structs.replace(ROW, total_us=16.0, share=0.05, roofline_share=0.97)
    assert after_gemm(good, wall_us=420.0) == (
        "next: 60.0 us of the call in which the GPU idles: fewer launches, or a graph"
    )


def test_bytes_that_had_not_left_the_cache_are_told_apart() -> None:
    seen = Counters(time_us=16.0, dram_read_bytes=33_600_000, dram_write_bytes=13_000_000, stored_bytes=33_554_432)
    text = profile_text(with_row(counters=seen))
    assert "33.6 MB read, 13.0 MB written, 33.6 MB stored, of which the rest was still in L2 or stored over" in text
    assert "stored" not in profile_text(with_row(counters=msgspec.structs.replace(seen, dram_write_bytes=33_500_000)))


def test_small_grid_and_waiting_warps_and_scattered_loads_are_named() -> None:
    full = Occupancy(theoretical=1.0, limiter="", blocks_per_sm=8)
    assert "its grid fills 50% of the device" in first(with_row(occupancy=msgspec.structs.replace(full, waves=0.5)))
    assert "wait on long scoreboard (70% of all waiting)" in first(with_row(occupancy=full))
    scattered = msgspec.structs.replace(ROW.counters, sectors_per_load=32.0) if ROW.counters else None
    assert "32 sectors a request (uncoalesced)" in first(with_row(occupancy=full, counters=scattered))


def test_table_shows_shape_occupancy_counters_and_evidence() -> None:
    text = profile_text(PROFILE)
    assert "silu<4> (authored, memory-bound, 67.11 MB, 31% of roofline, 4096 x 256 threads, 128 registers, " in text
    assert "occupancy 25% by registers, 24% achieved, 15.5 waves, torch.profiler, ncu)" in text
    assert "ncu: memory 40%, compute 20%, L2 hit 50%, 4.0 sectors a load; stalls: long scoreboard 70%" in text
    assert "idle 4.0 us between gemm and silu" in text
    assert "ceilings measured on this device: copy 4250 GB/s, bf16 790 TFLOP/s" in text
    assert "gemm (aten::mm, torch.profiler)" in text


def test_silent_profile_shows_no_percentages_and_no_times() -> None:
    silent = Profile(subject="candidate", rows=(), total_us=0.0, notes=("no GPU activity recorded",))
    assert profile_text(silent) == "candidate:\nno GPU activity recorded"


def test_clean_check_and_check_that_did_not_run_are_told_apart() -> None:
    clean = checked_text(Checked(check="memcheck", ran=True))
    assert clean == "memcheck: nothing found on one call (other inputs may still fail)"
    absent = Checked(check="memcheck", ran=False, problem="compute-sanitizer is not installed here")
    assert checked_text(absent) == "memcheck could not be done: compute-sanitizer is not installed here"


WRITE = Finding(kind="Invalid __global__ write of size 4 bytes", kernel="silu", file="kernels/silu.cu", line=9)


def times(count: int, errors: int, *others: Finding) -> list[str]:
    found = (msgspec.structs.replace(WRITE, times=count), *others)
    return checked_text(Checked(check="memcheck", ran=True, findings=found, errors=errors)).splitlines()


def test_error_that_many_threads_met_is_told_once() -> None:
    told = "silu at kernels/silu.cu:9: Invalid __global__ write of size 4 bytes"
    assert times(1, 1) == ["memcheck: 1 error", told]
    assert times(36, 36) == ["memcheck: 36 errors, all of one kind at one place", told]
    head = "memcheck: 207,170 errors; the 100 that it describes are all of one kind at one place"
    assert times(100, 207_170) == [head, told]
    two = times(60, 207_170, msgspec.structs.replace(WRITE, line=12, times=40))
    assert two[0] == "memcheck: 207,170 errors; the 100 that it describes are 2 distinct"
    assert two[1:] == [f"{told}, 60 times", f"{told.replace(':9:', ':12:')}, 40 times"]


def test_kernel_that_only_the_compiler_knows_has_no_time_and_no_share() -> None:
    resources = KernelResources(kernel="silu", architecture="sm_90a", registers=40)
    text = profile_text(from_resources("candidate", (resources,)))
    assert text.splitlines()[-1].split(maxsplit=3) == [
        "-",
        "-",
        "-",
        "silu (authored, 40 registers, occupancy 75% by registers (at 256 threads a block), ptxas)",
    ]


def test_floor_is_said_where_nothing_was_timed() -> None:
    silent = Profile(subject="candidate", rows=(), total_us=0.0, floor_us=40.0, floor_bound="memory")
    assert "the call's bytes alone take 40.0 us at the measured ceilings (analytic)" in profile_text(silent)

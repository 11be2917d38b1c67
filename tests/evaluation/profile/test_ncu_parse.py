"""ncu's raw page as CSV, and what a run of it says of the machine. The text is ours, in the documented form."""

import pytest

from cuda_tui.evaluation.profile.ncu import judged, parse
from cuda_tui.evaluation.profile.solo import Ran

COLUMNS = {
    "ID": ("", "0"),
    "Process ID": ("", "77"),
    "Kernel Name": ("", "void silu<4>(const float *, float *, long)"),
    "Block Size": ("", "(256, 1, 1)"),
    "Grid Size": ("", "(4096, 1, 1)"),
    "CC": ("", "9.0"),
    "gpu__time_duration.sum": ("ns", "30,592"),
    "dram__bytes_read.sum": ("byte", "67,108,864"),
    "dram__bytes_write.sum": ("Mbyte", "33.5"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": ("sector", "2,097,152"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "78.25"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "25.00"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "n/a"),
    "l1tex__t_sector_hit_rate.pct": ("%", "12.5"),
    "lts__t_sector_hit_rate.pct": ("%", "50"),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": ("sector/request", "16"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "50"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "46.1"),
    "launch__occupancy_limit_registers": ("block", "4"),
    "launch__occupancy_limit_shared_mem": ("block", "32"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__occupancy_limit_warps": ("block", "8"),
    "launch__waves_per_multiprocessor": ("", "7.76"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "6.0"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("inst", "1.5"),
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("inst", "0.5"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("inst", "1.0"),
    "smsp__average_warps_issue_stalled_wait_not_issued_per_issue_active.ratio": ("inst", "9.0"),
}


def page(*names: str) -> str:
    """A page with a launch of each kernel."""
    values = {name: value for name, (_, value) in COLUMNS.items()}
    lines = [list(COLUMNS), [unit for unit, _ in COLUMNS.values()]]
    lines += [list((values | {"ID": str(number), "Kernel Name": name}).values()) for number, name in enumerate(names)]
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    return f"==PROF== Connected to process 77 (/usr/bin/python3)\n{quoted}\n"


def ran(log: str = "", output: str = "", *, returncode: int = 0, timed_out: bool = False) -> Ran:
    return Ran(returncode=returncode, log=log, output=output, timed_out=timed_out, error=None)


def test_counters_are_read_with_their_units() -> None:
    (launch,) = parse(page("void silu<4>(const float *, float *, long)"))
    assert launch.kernel.startswith("void silu<4>")
    counters = launch.counters
    assert counters.time_us == 30.592
    assert (counters.dram_read_bytes, counters.dram_write_bytes) == (67_108_864, 33_500_000)
    assert counters.stored_bytes == 67_108_864
    assert counters.moved_bytes(40 << 20) == 2 * 67_108_864, "what is stored and still in L2 counts as moved"
    assert counters.moved_bytes(10 << 20) == 67_108_864 + 33_500_000 + (10 << 20), "and no more than L2 can hold"
    assert counters.moved_bytes(0) == 67_108_864 + 33_500_000
    assert (counters.memory_share, counters.compute_share, counters.dram_share) == (0.7825, 0.25, None)
    assert (counters.l1_hit, counters.l2_hit) == (0.125, 0.5)
    assert (counters.sectors_per_load, counters.sectors_per_store) == (16.0, None)
    assert counters.launch == "(4096, 1, 1) x (256, 1, 1)"


def test_stalls_are_shares_of_all_waiting_without_the_issuing_itself() -> None:
    (launch,) = parse(page("a(int)"))
    assert [(stall.reason, stall.share) for stall in launch.counters.stalls] == [
        ("long scoreboard", 0.75),
        ("barrier", 0.1875),
        ("wait", 0.0625),
    ]


def test_occupancy_names_what_limits_it() -> None:
    (launch,) = parse(page("a(int)"))
    assert launch.occupancy is not None
    assert launch.occupancy.limiter == "registers"
    assert (launch.occupancy.theoretical, launch.occupancy.achieved, launch.occupancy.waves) == (0.5, 0.461, 7.76)
    assert launch.occupancy.evidence == "ncu"


def test_first_launch_of_each_kernel_is_kept() -> None:
    assert [launch.kernel for launch in parse(page("a(int)", "b(int)", "a(int)"))] == ["a(int)", "b(int)"]


@pytest.mark.parametrize("text", ["", "==ERROR== no", '"ID","Kernel Name"\n"",""\n', '"a\n"b"'])
def test_text_that_is_no_page_gives_nothing(text: str) -> None:
    assert parse(text) == ()


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (ran(page("a(int)")), "ok", ""),
        (
            ran(output="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", returncode=1),
            "forbidden",
            "root",
        ),
        (ran(output="==WARNING== No kernels were profiled."), "nothing", "no kernel"),
        (
            ran(output="==ERROR== Failed to initialize the profiler: LibraryNotLoaded"),
            "unsupported",
            "LibraryNotLoaded",
        ),
        (ran(output="==ERROR== some message nobody has seen", returncode=255), "other", "nobody has seen"),
        (ran(timed_out=True, returncode=-9), "late", "60 s"),
        (ran(returncode=9), "other", "exit code 9"),
    ],
)
def test_run_is_judged_in_plain_words(found: Ran, state: str, words: str) -> None:
    access = judged(found, limit_s=60)
    assert access.state == state
    assert words in access.message

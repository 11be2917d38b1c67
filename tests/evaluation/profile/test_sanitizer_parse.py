"""compute-sanitizer's reports, in the documented form, as findings."""

import pytest

from cuda_tui.evaluation.profile.sanitizer import judged, parse
from cuda_tui.evaluation.profile.solo import Ran

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at bad(float *, int)+0x70 in /tmp/cuda-tui/candidate-1/kernels/bad.cu:12
=========     by thread (65,0,0) in block (3,0,0)
=========     Access to 0x7f241b0001e0 is out of bounds
=========     and is 33 bytes after the nearest allocation at 0x7f241b000000 of size 448 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at bad(float *, int)+0x70 in /tmp/cuda-tui/candidate-1/kernels/bad.cu:12
=========     by thread (66,0,0) in block (3,0,0)
=========     Access to 0x7f241b0001e4 is out of bounds
=========
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid" on CUDA API call to cuGetProcAddress_v2.
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "failure" on CUDA API call to cudaStreamSynchronize.
=========
Traceback (most recent call last):
RuntimeError: CUDA error: unspecified launch failure
========= ERROR SUMMARY: 36 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(const float *, float *)+0x150 in /w/kernels/sum.cu:27
=========     and Read access at sum(const float *, float *)+0x160 in /w/kernels/sum.cu:30 [4194304 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BARRIER = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at half(float *)+0x60 in /w/kernels/half.cu:4
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
UNINITIALISED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void (anonymous namespace)::add<4>(float const *)+0x130
=========     by thread (5,0,0) in block (0,0,0)
=========     Address 0x7f241b0001e0
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def ran(log: str = "", output: str = "", *, timed_out: bool = False, error: dict[str, object] | None = None) -> Ran:
    return Ran(returncode=0, log=log, output=output, timed_out=timed_out, error=error)


def test_memcheck_names_kernel_line_and_thread_once() -> None:
    (finding,), total = parse(MEMCHECK)
    assert finding.kind == "Invalid __global__ write of size 4 bytes"
    assert (finding.kernel, finding.place) == ("bad", "kernels/bad.cu:12")
    assert finding.thread == "thread (65,0,0) in block (3,0,0)"
    assert finding.detail == "out of bounds; 33 bytes after the nearest allocation, which has 448 bytes"
    assert finding.times == 2
    assert total == 36


def test_race_names_both_accesses() -> None:
    (finding,), total = parse(RACE)
    assert finding.kind == "race: write against read at kernels/sum.cu:30"
    assert (finding.kernel, finding.line, total) == ("sum", 27, 1)


def test_divergent_barrier_and_uninitialised_read_are_findings() -> None:
    (barrier,), _ = parse(BARRIER)
    assert (barrier.kind, barrier.place) == (
        "Barrier error detected. Divergent thread(s) in block.",
        "kernels/half.cu:4",
    )
    (read,), _ = parse(UNINITIALISED)
    assert (read.kernel, read.place) == ("(anonymous namespace)::add<4>", "")
    assert read.detail == "", "an address alone tells nothing"


SOURCES = ("kernels/bad.cu", "kernels/inner/sum.cu", "kernels/one/same.cuh", "kernels/two/same.cuh")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("bad.cu", "kernels/bad.cu"),
        ("/w/kernels/bad.cu", "kernels/bad.cu"),
        ("sum.cu", "kernels/inner/sum.cu"),
        ("same.cuh", "same.cuh"),
        ("/opt/torch/Loops.cuh", "Loops.cuh"),
    ],
)
def test_name_alone_means_the_source_of_that_name_where_there_is_only_one(place: str, expected: str) -> None:
    report = MEMCHECK.replace("/tmp/cuda-tui/candidate-1/kernels/bad.cu", place)
    (finding,), _ = parse(report, SOURCES)
    assert finding.file == expected


def test_both_places_of_a_race_are_paths_in_the_workspace() -> None:
    (finding,), _ = parse(RACE.replace("/w/kernels/", ""), SOURCES)
    assert finding.file == "kernels/inner/sum.cu"
    assert finding.kind == "race: write against read at kernels/inner/sum.cu:30"


def test_refused_launch_is_a_finding_and_a_probe_of_the_driver_is_none() -> None:
    launch = (
        '========= Program hit cudaErrorInvalidConfiguration (error 9) due to "invalid configuration argument" '
        "on CUDA API call to cudaLaunchKernel.\n========= ERROR SUMMARY: 1 error\n"
    )
    (finding,), _ = parse(launch)
    assert "cudaErrorInvalidConfiguration" in finding.kind


@pytest.mark.parametrize(
    ("found", "did", "words"),
    [
        (ran(CLEAN), True, ""),
        (ran(output="========= Error: Device not supported. Please refer to the manual"), False, "not supported here"),
        (ran(timed_out=True), False, "did not end in 5 s"),
        (ran(output="compute-sanitizer: cannot execute"), False, "failed: compute-sanitizer: cannot execute"),
        (ran(CLEAN, error={"message": "no such op"}), False, "the call itself failed: no such op"),
    ],
)
def test_run_without_findings_is_told_apart_from_one_that_did_not_happen(found: Ran, did: bool, words: str) -> None:
    checked = judged(found, "memcheck", limit_s=5)
    assert checked.ran is did
    assert words in checked.problem
    assert checked.findings == ()

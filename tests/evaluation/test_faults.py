"""A candidate's error by its text: a fault, a refused launch, no memory, or an exception like any other."""

import pytest

from cuda_tui.evaluation import faults
from cuda_tui.evaluation.report import Code

HINT = "\nSearch for `cudaErrorX' in the CUDA documentation.\nCUDA kernel errors might be asynchronously reported."


@pytest.mark.parametrize(
    ("kind", "text", "code", "sentence"),
    [
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered" + HINT, Code.MEM_FAULT,
         "illegal memory access"),
        ("AcceleratorError", "CUDA error: misaligned address" + HINT, Code.MEM_FAULT, "misaligned address: a wide"),
        ("AcceleratorError", "CUDA error: device-side assert triggered" + HINT, Code.MEM_FAULT,
         "a device-side assert failed"),
        ("AcceleratorError", "CUDA error: unspecified launch failure" + HINT, Code.MEM_FAULT,
         "unspecified launch failure"),
        ("DriverError", "cuMemcpyDtoHAsync_v2: an illegal memory access was encountered (700)", Code.MEM_FAULT,
         "illegal memory access"),
        ("AcceleratorError", "CUDA error: the launch timed out and was terminated", Code.HANG, "the driver ended"),
        ("RuntimeError", "CUDA error: invalid configuration argument" + HINT, Code.LAUNCH_ERROR,
         "launch refused: invalid configuration argument (more than 1024 threads"),
        ("RuntimeError", "CUDA error: no kernel image is available for execution on the device", Code.LAUNCH_ERROR,
         "launch refused: no kernel image is available for execution on the device (the library was not"),
        ("RuntimeError", "CUDA error: too many resources requested for launch", Code.LAUNCH_ERROR, "launch refused:"),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 3.00 TiB. GPU 0 has a total capacity of 139.80 GiB "
         "of which 138.21 GiB is free. Including non-PyTorch memory, this process has 1.6 GiB in use.", Code.RAISED,
         "out of GPU memory: 3.00 TiB asked for, 138.21 GiB free of 139.80 GiB"),
        ("AcceleratorError", "CUDA error: out of memory", Code.RAISED, "out of GPU memory"),
        ("RuntimeError", "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "
         '"c10/cuda/CUDACachingAllocator.cpp":1135, please report a bug', Code.RAISED, "out of GPU memory"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried "
         "to allocate 4398046511104 bytes. Error code 12", Code.RAISED, "out of memory: 4,194,304 MiB asked for"),
    ],
)  # fmt: skip
def test_error_of_a_gpu_is_told_in_plain_words(kind: str, text: str, code: Code, sentence: str) -> None:
    found = faults.of_error({"type": kind, "message": text}, "run")
    assert found is not None
    assert found[0] is code
    assert found[1].startswith(sentence)
    assert "\n" not in found[1]


def test_refused_launch_that_the_worker_saw_is_told_like_one_that_was_raised() -> None:
    error = {"type": "Fault", "code": "LAUNCH_ERROR", "message": "invalid argument"}
    found = faults.of_error(error, "run")
    assert found is not None
    assert found[0] is Code.LAUNCH_ERROR
    assert found[1].startswith(
        "launch refused: invalid argument (more than 1024 threads a block, a grid of zero blocks"
    )


def test_fault_that_the_last_error_holds_is_no_refused_launch() -> None:
    error = {"type": "Fault", "code": "LAUNCH_ERROR", "message": "an illegal memory access was encountered"}
    assert faults.of_error(error, "graph_slice") == (Code.MEM_FAULT, "illegal memory access while it was timed")


@pytest.mark.parametrize(
    "error",
    [
        {"type": "ValueError", "message": "illegal instruction in the schedule"},
        {"type": "RuntimeError", "message": "Expected all tensors to be on the same device"},
        {"type": "RuntimeError", "message": "CUDA error: boom"},
        {"type": "Fault", "code": "BANNED_OP", "message": "model_new runs code compiled by torch.compile"},
    ],
)
def test_any_other_exception_stays_what_it_is(error: dict[str, str]) -> None:
    assert faults.of_error(error, "run") is None


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (-11, Code.MEM_FAULT, "segmentation fault"),
        (-9, Code.RAISED, "out of memory"),
        (3, Code.FORGED_RESULT, "status 3"),
    ],
)
def test_end_of_a_process_has_a_code(status: int, code: Code, words: str) -> None:
    found = faults.of_end(status, "run")
    assert found[0] is code
    assert words in found[1]

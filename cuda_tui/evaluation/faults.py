"""What the error of a candidate's process means, from its text: a verdict's code and one plain sentence.

The words are those of the CUDA runtime (cudaGetErrorString) and of torch's allocators. A text that is not known here is
an exception like any other.
"""

import re
from collections.abc import Mapping

from cuda_tui.evaluation.report import Code

SIGNALS = {4: "illegal instruction", 6: "abort", 7: "bus error", 8: "arithmetic fault", 11: "segmentation fault"}

ASSERTED = "device-side assert"
# After any of these the process's CUDA context is dead: whatever it says later is void.
_FAULTS = {
    "illegal memory access": "illegal memory access",
    "misaligned address": "misaligned address: a wide load or store at a pointer that is no multiple of its size",
    ASSERTED: "a device-side assert failed",
    "unspecified launch failure": "unspecified launch failure: an access outside of shared memory, most likely",
    "illegal instruction": "illegal instruction on the GPU",
    "invalid program counter": "invalid program counter: a call through a wrong pointer",
    "hardware stack error": "hardware stack error: recursion too deep or a corrupted stack",
    "operation not supported on global/shared address space": "an atomic or load in a wrong address space",
    "invalid address space": "an access in a wrong address space",
}
_NOT_BUILT = "the library was not built for this GPU's architecture"
_REFUSALS = {
    "invalid configuration": "more than 1024 threads a block, or a grid of zero blocks",
    "too many resources": "more registers or shared memory than a block can have",
    "too many blocks in cooperative launch": "more blocks than fit on the GPU at once",
    "no kernel image": _NOT_BUILT,
    "invalid device function": _NOT_BUILT,
    "unsupported toolchain": "its PTX is newer than the driver",
    "named symbol not found": "the library has no such kernel",
    # What older runtimes call an invalid configuration is an invalid argument on CUDA 13.
    "invalid argument": "more than 1024 threads a block, a grid of zero blocks or beyond the limits, or more shared "
    "memory than cudaFuncSetAttribute allowed",
}
_TIMED_OUT = "launch timed out"

_ASKED = re.compile(r"[Tt]ried to allocate (?P<asked>[\d.]+ ?\w+)")
_FREE = re.compile(r"total capacity of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free")
_ON_CPU = re.compile(r"you tried to allocate (?P<asked>\d+) bytes")
_OWN_WORDS = re.compile(r"CUDA error: ([^\n]+)")


def of_error(error: Mapping[str, object], operation: str) -> tuple[Code, str] | None:
    """A code and sentence for a worker's account of an exception; None where it is no fault of this kind."""
    text, kind = str(error.get("message", "")), str(error.get("type", ""))
    if memory := _memory(text, kind):
        return Code.RAISED, f"{memory}{during(operation)}"
    if "CUDA" not in text and kind not in ("AcceleratorError", "DriverError") and error.get("code") != "LAUNCH_ERROR":
        return None
    lowered = text.lower()
    if fault := next((sentence for words, sentence in _FAULTS.items() if words in lowered), None):
        return Code.MEM_FAULT, f"{fault}{during(operation)}"
    if _TIMED_OUT in lowered:
        return Code.HANG, f"the driver ended a kernel that took too long{during(operation)}"
    refusal = next((words for words in _REFUSALS if words in lowered), None)
    if refusal is None and error.get("code") != "LAUNCH_ERROR":
        return None
    words = _OWN_WORDS.search(text)
    cause = f" ({_REFUSALS[refusal]})" if refusal else ""
    said = (words[1] if words else text).strip().rstrip(".")
    return Code.LAUNCH_ERROR, f"launch refused: {said}{cause}{during(operation)}"


def _memory(text: str, kind: str) -> str:
    """The sentence of an allocation that failed; empty where the text is not about one."""
    if found := _ON_CPU.search(text):
        return f"out of memory: {int(found['asked']) / 2**20:,.0f} MiB asked for"
    # Where NVML cannot be asked, torch's allocator fails on its own message instead of giving it.
    unsaid = "CUDACachingAllocator" in text and "nvml" in text.lower()
    if kind != "OutOfMemoryError" and "out of memory" not in text and not unsaid:
        return ""
    asked, free = _ASKED.search(text), _FREE.search(text)
    facts = [f"{asked['asked']} asked for"] if asked else []
    facts += [f"{free['free']} free of {free['total']}"] if free else []
    return "out of GPU memory" + (f": {', '.join(facts)}" if facts else "")


def of_end(status: int | None, operation: str) -> tuple[Code, str]:
    """A code and sentence for a process that ended without an answer, by its exit status (or minus the signal)."""
    if status is not None and -status in SIGNALS:
        return Code.MEM_FAULT, f"{SIGNALS[-status]} during {operation}"
    if status == -9:
        return Code.RAISED, f"killed during {operation}: out of memory, most likely"
    return Code.FORGED_RESULT, f"the process ended itself with status {status} during {operation}"


def during(operation: str) -> str:
    """When it happened, where that is not an untimed call."""
    if operation == "run":
        return ""
    return " while it was loaded" if operation in ("load", "set_state") else " while it was timed"

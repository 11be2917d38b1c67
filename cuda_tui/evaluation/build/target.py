"""CUDA targets: in every usual spelling, the attached device's own, and on which device code for them runs."""

import re
from collections.abc import Mapping, Sequence

from cuda_tui.errors import UsageError
from cuda_tui.gpu import gpu_index
from cuda_tui.nvml import Nvml

_SPELLING = re.compile(r"(?:sm_|compute_)?(?P<major>\d{1,2}?)\.?(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?", re.I)
_OLDEST, _NEWEST = 50, 129  # sm numbers that any toolkit of the last ten years or the next few knows
_FIRST_OWN = 9  # from compute capability 9.0 on, a chip has instructions that only its own target ("sm_90a") may use


def spelled(text: str) -> tuple[str, ...]:
    """`9.0`, `sm_90`, `90`, `90a`, or several with commas, as `sm_90` and so on.

    Raises UsageError for what is no target.
    """
    targets = [_one(word) for word in re.split(r"[;,\s]+", text) if word]
    if not targets:
        raise UsageError("No CUDA target named.", hint="Write one as sm_90, 9.0, 90 or 90a.")
    return tuple(dict.fromkeys(targets))


def _one(word: str) -> str:
    found = _SPELLING.fullmatch(word)
    if found is None or not _OLDEST <= int(found["major"] + found["minor"]) <= _NEWEST:
        raise UsageError(f"{word} is no CUDA target.", hint="Write it as sm_90, 9.0, 90 or 90a.")
    return f"sm_{found['major']}{found['minor']}{found['suffix'].lower()}{'+PTX' if found['ptx'] else ''}"


def own_target(capability: tuple[int, int]) -> str:
    """The target that may use everything a device of this compute capability has: sm_90a of (9, 0), sm_89 of (8, 9)."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= _FIRST_OWN else ''}"


def attached_target(device: str, environ: Mapping[str, str], *, nvml: Nvml | None = None) -> str | None:
    """The own target of the GPU that "cuda" or "cuda:N" means; None for the CPU, and where NVML does not say.

    Raises UsageError where NVML says that there is no such GPU.
    """
    if not device.startswith("cuda"):
        return None
    nvml = nvml or Nvml.open()
    place = gpu_index(device, environ, nvml=nvml)
    capability = nvml.read(place.index).capability if place else None
    return own_target(capability) if capability else None


def runs_on(targets: Sequence[str] | str, capability: tuple[int, int]) -> str:
    """Why no code built for these targets runs on a device of this compute capability; empty where some does.

    Machine code runs on its own major version, from its minor version on; that of an "a" target on its chip alone,
    that of an "f" target on its family (CUDA C++ Programming Guide, "Binary Compatibility" and "Family-specific
    features"). PTX, which "+PTX" adds, is compiled by the driver for every later chip.
    """
    names = spelled(targets) if isinstance(targets, str) else spelled(",".join(targets))
    if any(_runs(name, capability) for name in names):
        return ""
    own = own_target(capability)
    return (
        f"built for {', '.join(names)}, and none of it runs on this GPU, which has compute capability "
        f"{capability[0]}.{capability[1]} ({own}): build for {own}, or name no target"
    )


def _runs(name: str, capability: tuple[int, int]) -> bool:
    found = _SPELLING.fullmatch(name)
    assert found is not None  # `spelled` made it
    built, suffix = (int(found["major"]), int(found["minor"])), found["suffix"].lower()
    if suffix == "a":
        return built == capability
    same_major = built[0] == capability[0] and built[1] <= capability[1]
    return same_major or (found["ptx"] is not None and not suffix and built <= capability)

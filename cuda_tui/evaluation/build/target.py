"""CUDA targets: every usual spelling, the attached device's own, and whether a binary runs on a device."""

import re
from collections.abc import Sequence

from cuda_tui.errors import UsageError

_SPELLING = re.compile(r"(?:sm_|compute_)?(?P<major>\d{1,2}?)\.?(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?", re.I)
_OLDEST, _NEWEST = 50, 129  # sm numbers that any toolkit of the last ten years or the next few knows


def spelled(text: str) -> tuple[str, ...]:
    """`9.0`, `sm_90`, `90`, `90a`, or several with commas, as `sm_90` and so on.

    Raises UsageError for what is no target, and for `native`, which only `attached` can answer.
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


def attached(capability: tuple[int, int]) -> str:
    """The target of a device. From 9.0 on with `a`: code that uses all of the chip, and runs on no other."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def choose(named: Sequence[str], capability: tuple[int, int] | None) -> tuple[str, ...]:
    """What to build for: what the person named, with `native` as the device; else the device. Raises UsageError."""
    words = [word for text in named for word in re.split(r"[;,\s]+", text) if word]
    if not words:
        words = ["native"]
    if "native" in words and capability is None:
        raise UsageError(
            "No GPU is attached and no CUDA target is named.",
            hint='Name one: architectures = ["sm_90a"] in task.toml, or --architectures sm_90a.',
        )
    own = attached(capability) if capability else ""
    return spelled(" ".join(own if word == "native" else word for word in words))


def runs_on(target: str, capability: tuple[int, int]) -> bool:
    """Whether a library built for `sm_80,sm_90a` has code for a device: same major and no newer minor, `a` exactly."""
    return any(_runs_on(word, capability) for word in target.split(","))


def _runs_on(word: str, capability: tuple[int, int]) -> bool:
    found = _SPELLING.fullmatch(word)
    if found is None:
        return False
    built = int(found["major"]), int(found["minor"])
    if found["ptx"] and not found["suffix"]:
        return built <= capability
    if found["suffix"].lower() == "a":
        return built == capability
    return built[0] == capability[0] and built[1] <= capability[1]

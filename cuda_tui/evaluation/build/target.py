"""CUDA targets in every usual spelling."""

import re

from cuda_tui.errors import UsageError

_SPELLING = re.compile(r"(?:sm_|compute_)?(?P<major>\d{1,2}?)\.?(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?", re.I)
_OLDEST, _NEWEST = 50, 129  # sm numbers that any toolkit of the last ten years or the next few knows


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

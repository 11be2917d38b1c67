"""The precompiled header kept for the whole machine, and old build products removed.

Precompiling cuda_tui.h takes about five seconds and saves about three at each compile, so it is done once for a
compiler and a torch, not once for a workspace. It is copied in and out, never linked: what runs in a workspace's
sandbox could write to it there.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from cuda_tui.evaluation.build.plan import Plan, Precompiled

HEADERS_KEPT = 3  # about 90 MB each
OBJECTS_KEPT = 400
LIBRARIES_KEPT = 60


def take_from_cache(plan: Plan, cache: Path) -> None:
    """Copy precompiled headers that the plan lacks into the build folder."""
    for item in plan.precompiled:
        kept = _kept(item, cache)
        if not item.ready and kept.exists():
            _copy(kept, Path(plan.root, item.object))
            os.utime(kept)


def give_to_cache(plan: Plan, cache: Path) -> None:
    """Keep headers that this very build made, and drop the ones used longest ago. A full disk loses nothing else."""
    for item in plan.precompiled:
        made, kept = Path(plan.root, item.object), _kept(item, cache)
        if not item.ready and made.exists() and not kept.exists():
            try:
                _copy(made, kept)
            except OSError:
                shutil.rmtree(kept.parent, ignore_errors=True)
    folder = cache / "precompiled"
    if folder.is_dir():
        for old in _oldest(list(folder.iterdir()), keep=HEADERS_KEPT):
            shutil.rmtree(old, ignore_errors=True)


def has(item: Precompiled, cache: Path) -> bool:
    """Whether the machine's cache holds this header."""
    return _kept(item, cache).exists()


def prune(build_dir: Path, plan: Plan) -> None:
    """Remove the objects and libraries used longest ago; never those of this plan."""
    current = {Path(plan.root, item.object).stem for item in plan.objects}
    current |= {Path(plan.library).stem} if plan.library else set()
    for name, keep in (("objects", OBJECTS_KEPT), ("libraries", LIBRARIES_KEPT)):
        suffix = ".o" if name == "objects" else ".so"
        for old in _oldest(list((build_dir / name).glob(f"*{suffix}")), keep=keep):
            if old.stem not in current:
                for path in old.parent.glob(f"{old.stem}.*"):
                    path.unlink(missing_ok=True)


def _kept(item: Precompiled, cache: Path) -> Path:
    """Where the cache has it: by the key, which is the name of its folder in the build."""
    return cache / "precompiled" / Path(item.object).parent.name / Path(item.object).name


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.copyfile(source, partial)
    os.replace(partial, target)


def _oldest(paths: Sequence[Path], *, keep: int) -> list[Path]:
    """All but the `keep` newest."""
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]

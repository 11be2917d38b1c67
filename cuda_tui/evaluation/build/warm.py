"""The precompiled header made ahead of the first build, for instance while the reference model is being loaded."""

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from cuda_tui.errors import CudaTuiError
from cuda_tui.evaluation.build import cache
from cuda_tui.evaluation.build.build import Run
from cuda_tui.evaluation.build.plan import BuildOptions, make_plan
from cuda_tui.workspace.data import data_folder

WARM_TIMEOUT_S = 120.0


def warm_header(
    root: Path,
    *,
    python: str,
    env: Mapping[str, str],
    cache_folder: Path,
    run: Run,
    cancel: threading.Event | None = None,
) -> bool:
    """Put the header for this compiler and this torch into the machine's cache; whether it is there afterwards.

    About five seconds of one core the first time, 0.2 s from then on. It is made in `root`, an empty folder that the
    caller removes and that `run` can write. Only the template is compiled; the sandbox of `run` is there because its
    processes end with ours, even if ours is killed. A machine that cannot do it is no error here: the build itself
    says what is missing.
    """
    try:
        shutil.copytree(data_folder("workspace_template") / "kernels", root / "kernels")
        (root / "kernels" / "empty.cpp").write_text('#include "cuda_tui.h"\n', encoding="ascii")
        plan = make_plan(root, python=python, env=env, options=BuildOptions(device="cpu"), write=True)
        wanted = [item.object for item in plan.precompiled]
        if not wanted:
            return False
        if all(cache.has(item, cache_folder) for item in plan.precompiled):
            return True
        if plan.tools.ninja is None:
            return False
        argv = [plan.tools.ninja, "-f", str(root / plan.build_dir / "build.ninja"), *wanted]
        done = run(argv, cwd=root, env=env, timeout_s=WARM_TIMEOUT_S, cancel=cancel)
        if done.returncode == 0 and not done.cancelled:
            cache.give_to_cache(plan, cache_folder)
        return all(cache.has(item, cache_folder) for item in plan.precompiled)
    except (CudaTuiError, OSError):
        return False

"""The torch.compile baseline, with the facts that make it valid: graphs, breaks, and no fallback to eager."""

import os
import time
from typing import Any

import torch

MOST_THREADS = 8


class NotCompiled(Exception):
    """The baseline is not valid; the text says why."""

    code = "BASELINE"


def compile_model(
    model: torch.nn.Module, args: Any, kwargs: Any, *, mode: str = "default"
) -> "tuple[Any, dict[str, Any]]":
    """Compile with a mode and static shapes, call until no compilation happens, and say what was made.

    Raises NotCompiled where no graph was made or a later call compiled again.
    """
    import torch._inductor.config as inductor
    from torch._dynamo.utils import counters

    # A precompiled header is made anew in every process: 7 s each, where a kernel from the cache needs none.
    inductor.cpp_cache_precompile_headers = False
    if torch.cuda.is_initialized():
        # Threads that compile what max-autotune chooses from; the pool of processes stays off, since it outlives us.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(min(MOST_THREADS, os.cpu_count() or 1))
    counters.clear()
    started = time.perf_counter()
    compiled = torch.compile(model, dynamic=False, mode=mode)
    with torch.no_grad():
        compiled(*args, **kwargs)
        graphs = counters["stats"].get("unique_graphs", 0)
        compiled(*args, **kwargs)
        again = counters["stats"].get("unique_graphs", 0) - graphs
    breaks = sum(counters["graph_break"].values())
    if not graphs:
        raise NotCompiled("torch.compile made no graph: the model ran in eager mode")
    if again:
        raise NotCompiled("torch.compile compiled again on equal inputs")
    return compiled, {"graphs": graphs, "graph_breaks": breaks, "compile_s": time.perf_counter() - started}

"""Where a call's time goes, by operator, from torch.profiler on this process."""

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def operators(call: "Callable[[], Any]", *, repeats: int = 5) -> "dict[str, Any]":
    """Self time of each operator in microseconds a call, the longest first; device events apart.

    `device_events` of zero on a GPU task means that no GPU activity was recorded, never that it took no time.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_initialized():
        activities.append(ProfilerActivity.CUDA)
    with torch.no_grad():
        call()
        with profile(activities=activities, record_shapes=False) as recorded:
            for _ in range(repeats):
                call()
    rows = []
    device_events = 0
    for event in recorded.key_averages():
        device_us = float(getattr(event, "self_device_time_total", 0.0)) / repeats
        device_events += device_us > 0
        row = {"name": event.key, "calls": event.count / repeats, "device_us": device_us}
        rows.append(row | {"self_us": event.self_cpu_time_total / repeats})
    rows.sort(key=lambda row: -max(row["self_us"], row["device_us"]))
    return {"rows": rows, "device_events": device_events}


def ceilings() -> "dict[str, float]":
    """This process's own copy bandwidth (read plus write, GB/s) and fp32 matrix rate (GFLOP/s)."""
    import time

    source = torch.rand(1 << 24)
    target = torch.empty_like(source)
    copy_s = min(_timed(lambda: target.copy_(source), time.perf_counter) for _ in range(5))
    left, right = torch.rand(768, 768), torch.rand(768, 768)
    matrix_s = min(_timed(lambda: left @ right, time.perf_counter) for _ in range(5))
    return {"bandwidth_gbs": 2 * source.numel() * 4 / copy_s / 1e9, "gflops": 2 * 768**3 / matrix_s / 1e9}


def _timed(call: "Callable[[], Any]", clock: "Callable[[], float]") -> float:
    start = clock()
    call()
    return clock() - start

"""Where a call's time goes, from torch.profiler on this process: operators, and on a GPU kernels and a time line."""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

REPEATS = 5
GAPS = 5
WALL_BATCHES = 3
Row = dict[str, Any]


def operators(call: "Callable[[], Any]", *, repeats: int = REPEATS) -> "Row":
    """Self time of each operator in microseconds a call, the longest first; device events apart.

    `device_events` of zero on a GPU task means that no GPU activity was recorded, never that it took no time.
    """
    on_gpu = torch.cuda.is_initialized()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.no_grad():
        call()
        wall_us = _wall_us(call, repeats) if on_gpu else 0.0
        with profile(activities=activities, record_shapes=False) as recorded:
            for _ in range(repeats):
                call()
            if on_gpu:
                torch.cuda.synchronize()
    rows = []
    device_events = 0
    for event in recorded.key_averages():
        device_us = float(getattr(event, "self_device_time_total", 0.0)) / repeats
        device_events += device_us > 0
        row = {"name": event.key, "calls": event.count / repeats, "device_us": device_us}
        rows.append(row | {"self_us": event.self_cpu_time_total / repeats})
    rows.sort(key=lambda row: -max(row["self_us"], row["device_us"]))
    found: Row = {"rows": rows, "device_events": device_events}
    if on_gpu:
        found |= timeline(_device_events(recorded), repeats, wall_us) | {"device": device_facts()}
    return found


def _wall_us(call: "Callable[[], Any]", repeats: int) -> float:
    """Of one call without a profiler, the device waited for at the end of each batch."""
    spans = []
    for _ in range(WALL_BATCHES + 1):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        spans.append((time.perf_counter_ns() - start) / 1e3 / repeats)
    return statistics.median(spans[1:])


def _device_events(recorded: profile) -> "list[Row]":
    """The events of the exported trace; without shapes and operators where torch's own export cannot be read."""
    try:
        return _chrome_trace(recorded)
    except (OSError, ValueError, LookupError, TypeError):
        return [_plain_event(event) for event in recorded.events() or () if "CUDA" in str(event.device_type)]


def _plain_event(event: Any) -> "Row":
    kind = next((cat for cat in _COPIES if event.name.lower().startswith(cat.removeprefix("gpu_"))), "kernel")
    span = event.time_range
    return {"ph": "X", "cat": kind, "name": event.name, "ts": span.start, "dur": span.end - span.start, "args": {}}


def _chrome_trace(recorded: profile) -> "list[Row]":
    """The events as torch exports them: only there stand a kernel's grid, block, registers and shared memory."""
    descriptor, path = tempfile.mkstemp(suffix=".json")
    os.close(descriptor)
    try:
        recorded.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as handle:
            events: list[Row] = json.load(handle)["traceEvents"]
    finally:
        os.unlink(path)
    return [event for event in events if event.get("ph") == "X"]


# ---- a trace: each kernel by name and operator, and what lay between them

_COPIES = ("gpu_memcpy", "gpu_memset")


def timeline(events: "list[Row]", repeats: int, wall_us: float) -> "Row":
    """Kernels in microseconds a call and the time line of `repeats` calls, from the events of a Chrome trace."""
    device = sorted(
        (event for event in events if event.get("cat") in ("kernel", *_COPIES)), key=lambda event: event["ts"]
    )
    operator = _operators_by_id(events)
    kernels: dict[tuple[str, str], Row] = {}
    for event in device:
        args = event.get("args", {})
        name = operator.get(args.get("External id"), "")
        row = kernels.setdefault((event["name"], name), _kernel(event["name"], name, args))
        row["calls"] += 1 / repeats
        row["device_us"] += event["dur"] / repeats
    copies = [event for event in device if event["cat"] in _COPIES]
    ordered = sorted(kernels.values(), key=lambda row: -row["device_us"])
    return {
        "kernels": ordered,
        "timeline": {
            "wall_us": wall_us,
            "busy_us": _busy_us(device) / repeats,
            "launches": round((len(device) - len(copies)) / repeats),
            "copies": round(len(copies) / repeats),
            "copy_us": sum(event["dur"] for event in copies) / repeats,
            "gaps": _gaps(device, repeats),
        },
    }


def _operators_by_id(events: "list[Row]") -> "dict[Any, str]":
    """The operator that launched what carries the same external id."""
    return {
        event["args"]["External id"]: event["name"]
        for event in events
        if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
    }


def _kernel(name: str, operator: str, args: "Row") -> "Row":
    return {
        "name": name,
        "operator": operator,
        "calls": 0.0,
        "device_us": 0.0,
        "grid": _product(args.get("grid")),
        "block": _product(args.get("block")),
        "registers": int(args.get("registers per thread") or 0),
        "shared_bytes": int(args.get("shared memory") or 0),
    }


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes or [0]:
        total *= int(size)
    return total


def _busy_us(device: "list[Row]") -> float:
    """Time in which at least one kernel or copy ran."""
    busy, end = 0.0, float("-inf")
    for event in device:
        start, stop = event["ts"], event["ts"] + event["dur"]
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy


def _gaps(device: "list[Row]", repeats: int) -> "list[Row]":
    """The largest idle times inside a call, by pair of names; the median over the calls."""
    spans: dict[tuple[str, str], list[float]] = {}
    end, before = None, ""
    for event in device:
        if end is not None and event["ts"] > end:
            spans.setdefault((before, event["name"]), []).append(event["ts"] - end)
        if end is None or event["ts"] + event["dur"] > end:
            end, before = event["ts"] + event["dur"], event["name"]
    # From one call to the next there is one gap less than there are calls.
    often = {pair: found for pair, found in spans.items() if len(found) >= repeats}
    ordered = sorted(often.items(), key=lambda item: -statistics.median(item[1]))[:GAPS]
    return [{"after": a, "before": b, "us": statistics.median(found)} for (a, b), found in ordered]


# ---- the device and what it can reach


def device_facts() -> "Row":
    """What the current GPU is."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": found.name,
        "uuid": str(getattr(found, "uuid", "")),
        "capability": [found.major, found.minor],
        "sms": found.multi_processor_count,
        "l2_bytes": int(getattr(found, "L2_cache_size", 0)),
        "torch": torch.__version__,
        "tf32": torch.get_float32_matmul_precision() != "highest",
    }


def ceilings() -> "dict[str, float]":
    """This process's own copy bandwidth (read plus write, GB/s) and fp32 matrix rate (GFLOP/s)."""
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


COPY_BYTES = 4 << 30  # of one side at most; several times any L2
FREE_SHARE = 0.3  # of the free memory, for both sides together
MATRIX = 8192
SAMPLES = 7
BURST = 3  # products in one sample: long ones run into the power limit, which is part of what can be reached
_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def device_ceilings() -> "dict[str, list[float]]":
    """Rates that the current GPU reaches, several samples each: "copy" in GB/s, matrix products in GFLOP/s.

    The copy counts bytes read and written. Products are of random square matrices, "fp32" without tensor cores.
    """
    before = torch.get_float32_matmul_precision()
    found = {"copy": _copy_rates()}
    for name in _TYPES:
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        found[name] = _matrix_rates(_TYPES[name])
    torch.set_float32_matmul_precision(before)
    torch.cuda.empty_cache()
    return found


def _copy_rates() -> "list[float]":
    free = torch.cuda.mem_get_info()[0]
    count = min(COPY_BYTES, int(free * FREE_SHARE / 2)) // 4
    source = torch.rand(count, device="cuda")
    target = torch.empty_like(source)
    return _rates(lambda: target.copy_(source), 8.0 * count)


def _matrix_rates(dtype: torch.dtype) -> "list[float]":
    left, right = (torch.randn(MATRIX, MATRIX, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return _rates(lambda: torch.mm(left, right, out=out), 2.0 * MATRIX**3)


def _rates(call: "Callable[[], Any]", work: float) -> "list[float]":
    """Giga-units a second of each sample, by CUDA events around a few calls; two samples warm up."""
    rates = []
    with torch.no_grad():
        for _ in range(SAMPLES + 2):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(BURST):
                call()
            last.record()
            last.synchronize()
            rates.append(work * BURST / (first.elapsed_time(last) / 1e3) / 1e9)
    return rates[2:]

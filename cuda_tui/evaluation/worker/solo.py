"""One side alone in a plain fresh process: `python .../worker solo REQUEST.json`.

It exists to be wrapped: by a profiler, by a memory checker, or by CUDA_LAUNCH_BLOCKING=1 after a crash. Nothing that
it says is a verdict. The calls that count lie between cudaProfilerStart and cudaProfilerStop. It ends with status 0
after them, and with 3 where something raised; what is known of that stands in the request's answer file.
"""

import contextlib
import faulthandler
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import candidate, loading, tensors, timing, trees
from . import device as gpu
from .zygote import failure

FAILED = 3
PROBE_ELEMENTS = 1 << 10

Call = Callable[[], Any]


def main(path: str) -> int:
    """Run one request to its end. Returns the exit status."""
    with open(path, encoding="utf-8") as handle:
        request = json.load(handle)
    faulthandler.enable()
    # The stacks tell where a call hangs; the controller's own limit lies a little later.
    faulthandler.dump_traceback_later(request["limit_s"], exit=True)
    try:
        call, device = _SIDES[request["side"]](request)
        answer: dict[str, Any] = {"calls": run(call, device, warm=request["warm"], calls=request["calls"])}
        status = 0
    except Exception as error:
        answer, status = failure(error, request["side"]), FAILED
    with open(request["answer"], "w", encoding="utf-8") as handle:
        json.dump(answer, handle)
    faulthandler.cancel_dump_traceback_later()
    return status


def run(call: Call, device: torch.device, *, warm: int, calls: int) -> int:
    """Warm up, then make the calls that a profiler looks at. Raises Fault where a launch was refused."""
    checked = gpu.checked if gpu.is_gpu(device) else _plain
    with torch.no_grad():
        for _ in range(warm):
            checked(call)
        gpu.synchronize(device)
        with _profiled(device):
            for _ in range(calls):
                checked(call)
            gpu.synchronize(device)
    return calls


def _plain(call: Call) -> Any:
    return call()


@contextlib.contextmanager
def _profiled(device: torch.device) -> "Iterator[None]":
    if not gpu.is_gpu(device):
        yield
        return
    runtime = torch.cuda.cudart()
    runtime.cudaProfilerStart()
    try:
        yield
    finally:
        runtime.cudaProfilerStop()


def _candidate(request: "dict[str, Any]") -> "tuple[Call, torch.device]":
    """ModelNew on one draw, loaded as it is for verifying."""
    service = candidate.Service({"device": request["device"], "threads": 1})
    service.load(request["load"])
    timing.poison_new_memory(False)
    if request.get("state"):
        service.set_state(**request["state"])
    inputs = request["inputs"]
    given = tensors.read_tensors(inputs["path"], inputs["rows"], service.device)
    args, kwargs = trees.unflatten(inputs["plan"], given, service.module)
    return lambda: service.model(*args, **kwargs), service.device


def _reference(request: "dict[str, Any]") -> "tuple[Call, torch.device]":
    """The user's model on inputs of their own making."""
    timing.settle(1, None)
    os.chdir(request["cwd"])
    device, task = gpu.use(request["device"]), request["task"]
    module = loading.import_file(request["path"], "model", request["roots"])
    with loading.seeded(0):
        model = loading.construct(module, task["class_name"], task.get("init"), device)
    model.train(task.get("mode") == "train")
    leaves = trees.flatten(loading.draw_inputs(module, task["inputs"], request["seed"]), "inputs")
    given = gpu.placed([tensor.detach() for tensor in leaves.tensors], device)
    args, kwargs = trees.unflatten(leaves.plan, given, module)
    return lambda: model(*args, **kwargs), device


def _probe(request: "dict[str, Any]") -> "tuple[Call, torch.device]":
    """A kernel of torch's own, for asking whether a tool works here at all."""
    device = gpu.use(request["device"])
    values = torch.zeros(PROBE_ELEMENTS, device=device)
    return lambda: values.add_(1.0), device


_SIDES = {"candidate": _candidate, "reference": _reference, "probe": _probe}

"""The CUDA driver by ctypes: graphs that torch cannot build, their audit, and bytes copied past every operator.

Bound when this module is imported, which is before any code of a candidate. Nothing here needs a compiler.
Sources: the CUDA driver API reference (graph management, memory management); names with _v2 are those of cuda.h.
"""

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

_P = ctypes.c_void_p

KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, EVENT_RECORD = 0, 1, 2, 3, 4, 5, 7
_KINDS = {
    **{KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", HOST: "host", GRAPH: "graph", EMPTY: "empty"},
    **{6: "wait event", EVENT_RECORD: "record event", 8: "semaphore signal", 9: "semaphore wait"},
    **{10: "allocation", 11: "free", 12: "batch memory operation", 13: "conditional"},
}
_PROGRAMMATIC = 2  # offset of `type` in CUgraphEdgeData: from_port, to_port, type, five reserved bytes


class DriverError(Exception):
    """A call of the driver failed; the text has the call and the driver's own words."""


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", _P),
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("params", _P),
        ("extra", _P),
        ("kern", _P),
        ("ctx", _P),
    )


@cache
def library() -> ctypes.CDLL:
    """libcuda. Raises OSError where there is no driver."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    """One call; raises DriverError with the driver's sentence."""
    cuda = library()
    code = getattr(cuda, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


class Copier:
    """Device memory to host memory on a stream of our own, which waits for nothing that others have queued."""

    def __init__(self) -> None:
        self._stream = _P()
        call("cuStreamCreate", ctypes.byref(self._stream), 1)  # CU_STREAM_NON_BLOCKING

    def to_host(self, source: int, target: int, size: int) -> None:
        """`size` bytes from a device address to a host address, as they are now."""
        call("cuMemcpyDtoHAsync_v2", _P(target), ctypes.c_ulonglong(source), ctypes.c_size_t(size), self._stream)
        call("cuStreamSynchronize", self._stream)


class Chain:
    """A graph whose first and last nodes record events and whose child graphs run one after the other."""

    def __init__(self, graphs: "Sequence[int]", first_event: int, last_event: int) -> None:
        self._graph, self._executable = _P(), _P()
        self._last: int | None = None
        call("cuGraphCreate", ctypes.byref(self._graph), 0)
        self._add("cuGraphAddEventRecordNode", first_event)
        self.children = [self._add("cuGraphAddChildGraphNode", graph) for graph in graphs]
        self._add("cuGraphAddEventRecordNode", last_event)
        call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, ctypes.c_ulonglong(0))

    def _add(self, name: str, what: int) -> int:
        node = _P()
        before = (_P * 1)(self._last) if self._last else None
        count = ctypes.c_size_t(1 if self._last else 0)
        call(name, ctypes.byref(node), self._graph, before, count, _P(what))
        assert node.value is not None
        self._last = node.value
        return node.value

    def launch(self, stream: int) -> None:
        """Queue one replay."""
        call("cuGraphLaunch", self._executable, _P(stream))

    def audit(self) -> "list[dict[str, Any]]":
        """What each child graph holds, as the driver has it: see `audit`."""
        return [audit(_child_graph(node)) for node in self.children]

    def close(self) -> None:
        """Free both."""
        for name, handle in (("cuGraphExecDestroy", self._executable), ("cuGraphDestroy", self._graph)):
            if handle:
                getattr(library(), name)(handle)
                handle.value = None


def _child_graph(node: int) -> int:
    graph = _P()
    call("cuGraphChildGraphNodeGetGraph", _P(node), ctypes.byref(graph))
    assert graph.value is not None
    return graph.value


def audit(graph: int) -> "dict[str, Any]":
    """Kinds of nodes with their counts, kernel names with theirs, and the number of programmatic edges."""
    kinds: dict[str, int] = {}
    kernels: dict[str, int] = {}
    for node in _nodes(graph):
        number = ctypes.c_int()
        call("cuGraphNodeGetType", _P(node), ctypes.byref(number))
        kind = _KINDS.get(number.value, str(number.value))
        kinds[kind] = kinds.get(kind, 0) + 1
        if number.value == KERNEL:
            name = _kernel_name(node)
            kernels[name] = kernels.get(name, 0) + 1
        elif number.value == GRAPH:
            inner = audit(_child_graph(node))
            for total, part in ((kinds, inner["kinds"]), (kernels, inner["kernels"])):
                for key, count in part.items():
                    total[key] = total.get(key, 0) + count
    return {"kinds": kinds, "kernels": kernels, "programmatic": _programmatic(graph)}


def _nodes(graph: int) -> "list[int]":
    count = ctypes.c_size_t(0)
    call("cuGraphGetNodes", _P(graph), None, ctypes.byref(count))
    found = (_P * count.value)()
    if count.value:
        call("cuGraphGetNodes", _P(graph), found, ctypes.byref(count))
    return [node for node in found if node]


def _kernel_name(node: int) -> str:
    params, name = _KernelParams(), ctypes.c_char_p()
    call("cuGraphKernelNodeGetParams_v2", _P(node), ctypes.byref(params))
    if params.func:
        call("cuFuncGetName", ctypes.byref(name), _P(params.func))
    else:
        call("cuKernelGetName", ctypes.byref(name), _P(params.kern))
    return (name.value or b"").decode("utf-8", "replace")


def _programmatic(graph: int) -> int:
    """Edges that let a kernel begin before the one it depends on has ended."""
    count = ctypes.c_size_t(0)
    call("cuGraphGetEdges_v2", _P(graph), None, None, None, ctypes.byref(count))
    if not count.value:
        return 0
    start, end = (_P * count.value)(), (_P * count.value)()
    data = (ctypes.c_ubyte * (8 * count.value))()
    call("cuGraphGetEdges_v2", _P(graph), start, end, data, ctypes.byref(count))
    return sum(data[8 * number + _PROGRAMMATIC] != 0 for number in range(count.value))


@cache
def _runtime() -> "ctypes.CDLL | None":
    """The runtime library that this process has loaded, None where there is none."""
    with open("/proc/self/maps") as lines:
        found = re.search(r"(/\S*libcudart\.so\S*)", lines.read())
    return ctypes.CDLL(found.group(1)) if found else None


def launch_error() -> str:
    """The runtime's last error, cleared; empty where there is none. A refused launch leaves one and nothing else."""
    runtime = _runtime()
    if runtime is None:
        return ""
    code = runtime.cudaGetLastError()
    if not code:
        return ""
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return (runtime.cudaGetErrorString(code) or b"unknown error").decode()

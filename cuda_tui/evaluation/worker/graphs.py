"""Device time of one call: chained single-call graphs over rotating inputs, rewritten before every replay.

Each call is captured alone, into one memory pool, and becomes a child of one parent graph, so that calls cannot
overlap; the parent records an event before the first and after the last child. Outputs are held, on both sides. Before
each replay the outputs are poisoned, the stream is kept busy while the host queues what follows, every input is
rewritten from a seed that was sent after the capture, and the window begins at once. Why each of these is so stands in
docs/measuring.md.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import device as gpu
from . import driver, loading, precise, tensors, trees
from .loading import Fault

MIN_SETS, MAX_SETS = 3, 64
L2_FACTOR = 3  # inputs and outputs of all sets together, in sizes of the L2 cache
CALLS, WINDOW_US, ENOUGH_US = 20, 200.0, 2000.0
WARM_CALLS = 3
SPIN_US = 100.0
SLICE_MS = 30.0  # longer slices are power-limited where the work is heavy
REPLAYS, LEAST_REPLAYS = 7, 3  # the first one of a slice is dropped
MEMORY_SHARE = 0.03  # of the device's memory, for one process's sets and held outputs
ROW_ALIGNMENT = 512  # bytes, as torch's own allocations
PROBE_ELEMENTS, PROBE_CALLS = 1 << 20, 20
_clock, _Random = time.perf_counter_ns, random.Random
_process_time, _thread_time = time.process_time_ns, time.thread_time_ns

Arguments = Callable[["list[torch.Tensor]"], "tuple[tuple[Any, ...], dict[str, Any]]"]


class NotCapturable(Exception):
    """The call cannot become a graph; the text is the first cause."""


class Slab:
    """One input in K places, and how to write it anew."""

    def __init__(self, given: torch.Tensor, sets: int, *, changing: bool) -> None:
        self._changing = changing and given.numel() > 0
        self._floating = given.is_floating_point()
        span = tensors.span(given)
        step = max(1, ROW_ALIGNMENT // given.element_size())
        length = -(-max(span, 1) // step) * step
        self._memory = torch.empty(sets * length, dtype=given.dtype, device=given.device)
        self._rows = self._memory.view(sets, length)[:, :span]
        self._base = tensors.memory_of(given).clone()
        self._rows.copy_(self._base.expand(sets, span))
        self.places = [
            torch.as_strided(self._memory, given.shape, given.stride(), number * length) for number in range(sets)
        ]

    def rewrite(self, chance: "random.Random") -> None:
        """New content in every place: the first content, turned round by a step of the place's own and scaled by a
        factor of its own, 3/4 to 1. Signs, zeros, infinities and the range stay; integers are turned only."""
        if not self._changing:
            return
        span = self._base.numel()
        for row, (step, factor) in zip(self._rows, _chances(chance, span, len(self.places)), strict=True):
            _turn(self._base, row, step, factor)


class Sets:
    """All inputs of a call in K places each."""

    def __init__(self, given: "list[torch.Tensor]", sets: int, changing: "list[bool]") -> None:
        self._slabs = [Slab(tensor, sets, changing=change) for tensor, change in zip(given, changing, strict=True)]
        self._sets = sets

    def tensors(self, number: int) -> "list[torch.Tensor]":
        """The inputs of one set."""
        return [slab.places[number] for slab in self._slabs]

    def rewrite(self, seed: int, replay: int) -> None:
        """The content of one replay, a function of its seed and number."""
        for number, slab in enumerate(self._slabs):
            slab.rewrite(_Random(f"{seed}:{replay}:{number}"))


def _turn(source: torch.Tensor, target: torch.Tensor, step: int, factor: float) -> None:
    """Write `source` into `target`, turned round by some elements; floating numbers scaled as well."""
    size = source.numel()
    for place, part in ((target[: size - step], source[step:]), (target[size - step :], source[:step])):
        if not part.numel():
            continue
        if source.is_floating_point() and source.element_size() > 1:  # 8-bit floats have no product
            torch.mul(part, factor, out=place)
        else:
            place.copy_(part)


def rewritten(
    given: "list[torch.Tensor]", changing: "list[bool]", *, sets: int, number: int, seed: int, replay: int
) -> "list[torch.Tensor]":
    """What the inputs of set `number` held in one replay, computed anew: for whoever checks its output."""
    made = []
    for index, (tensor, change) in enumerate(zip(given, changing, strict=True)):
        copy = precise.clone_strided(tensor)
        made.append(copy)
        if not change or not copy.numel():
            continue
        flat = tensors.memory_of(copy)
        step, factor = _chances(_Random(f"{seed}:{replay}:{index}"), flat.numel(), sets)[number]
        _turn(flat.clone(), flat, step, factor)
    return made


def _chances(chance: "random.Random", span: int, sets: int) -> "list[tuple[int, float]]":
    """For each place: by how many elements its content is turned, and its factor."""
    return [(chance.randrange(span), chance.uniform(0.75, 1.0)) for _ in range(sets)]


class GraphTimer:
    """One model captured over rotating inputs. Raises NotCapturable where that is impossible."""

    def __init__(
        self, call: "Callable[..., Any]", arguments: Arguments, given: "list[torch.Tensor]", changing: "list[bool]"
    ) -> None:
        self._call, self._arguments = call, arguments
        self._device = given[0].device if given else torch.device("cuda", torch.cuda.current_device())
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        output_bytes, call_us, mutates = self._try(given)
        self.sets, self.calls = plan(
            sum(tensors.span(tensor) * tensor.element_size() for tensor in given), output_bytes, call_us,
            l2_bytes=torch.cuda.get_device_properties(self._device).L2_cache_size,
            memory_bytes=MEMORY_SHARE * torch.cuda.mem_get_info(self._device)[1],
        )  # fmt: skip
        if mutates:  # one call a set: a second one would begin from what the first one left
            self.calls = self.sets
        self.replays = replays_for(self.calls * call_us)
        self._inputs = Sets(given, self.sets, changing)
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self.outputs: list[Any] = []
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._chain = self._build()
        self._own_outputs = self._poisonable()
        self._probe = _Probe(self._device, self._stream)
        self.audit = self._chain.audit()
        self._last: tuple[int, int] = (0, 0)  # seed and number of the last replay
        self._busy_us = SPIN_US

    def _try(self, given: "list[torch.Tensor]") -> "tuple[int, float, bool]":
        """Warm up on a stream of our own. Bytes of the outputs, microseconds of a call by events, and whether the call
        changes its inputs."""
        copies = [precise.clone_strided(tensor) for tensor in given]
        args, kwargs = self._arguments(copies)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.no_grad(), self._on_stream():
            for _ in range(WARM_CALLS):
                result = gpu.checked(lambda: self._call(*args, **kwargs))
            gpu.spin(SPIN_US)
            start.record()
            for _ in range(WARM_CALLS):
                result = self._call(*args, **kwargs)
            end.record()
            torch.cuda.synchronize(self._device)
        outputs = trees.flatten(result).tensors
        size = sum(tensors.span(tensor) * tensor.element_size() for tensor in outputs)
        mutates = not all(map(torch.equal, copies, given))  # NaN makes it true, which costs nothing but calls
        return size, max(start.elapsed_time(end) * 1000 / WARM_CALLS, 0.5), mutates

    @contextlib.contextmanager
    def _on_stream(self) -> "Iterator[None]":
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _build(self) -> driver.Chain:
        for number in range(self.calls):
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            args, kwargs = self._arguments(self._inputs.tensors(number % self.sets))
            with capturing(graph, self._pool, self._stream), torch.no_grad():
                result = self._call(*args, **kwargs)
            self._graphs.append(graph)
            self.outputs.append(result)
        with torch.cuda.stream(self._stream):
            for event in self._events:  # an event exists in the driver only once it was recorded
                event.record()
        torch.cuda.synchronize(self._device)
        first, last = (event.cuda_event for event in self._events)
        try:
            return driver.Chain([graph.raw_cuda_graph() for graph in self._graphs], first, last)
        except driver.DriverError as error:
            raise NotCapturable(f"its graphs cannot be chained: {error}") from None

    def _poisonable(self) -> "list[torch.Tensor]":
        """The outputs' memory that is theirs alone. A model may return an input, or a part of its state."""
        state = loading.named_state(self._call).values() if isinstance(self._call, torch.nn.Module) else ()
        others = {_storage(tensor) for number in range(self.sets) for tensor in self._inputs.tensors(number)}
        others |= {_storage(tensor) for tensor in state}
        found = [tensor for output in self.outputs for tensor in trees.flatten(output).tensors]
        return [
            tensors.memory_of(tensor)
            for tensor in found
            if tensor.device == self._device and tensor.numel() and _storage(tensor) not in others
        ]

    def slice(self, seed: int, *, record: bool = True) -> "dict[str, Any]":
        """Microseconds a call of each replay but the first, with what else the slice tells."""
        spans: list[float] = []
        foreign = _foreign_us()
        began = _clock()
        with torch.cuda.stream(self._stream):
            for replay in range(self.replays if record else 2):
                spans.append(self._replay(seed, replay))
            probe_us = self._probe.time()
        return {
            "spans_us": spans[1:],
            "total_ns": _clock() - began,
            "foreign_us": _foreign_us() - foreign,
            "probe_us": probe_us,
        }

    def _replay(self, seed: int, replay: int) -> float:
        for tensor in self._own_outputs:
            gpu.blank(tensor)
        gpu.spin(self._busy_us)
        queued = _clock()
        self._inputs.rewrite(seed, replay)
        self._chain.launch(self._stream.cuda_stream)
        # The host must have queued the launch before the stream gets there, or the window begins with a wait.
        self._busy_us = max(SPIN_US, 1.5 * (_clock() - queued) / 1000)
        self._stream.synchronize()
        self._last = (seed, replay)
        return float(self._events[0].elapsed_time(self._events[1])) * 1000 / self.calls

    def last(self, number: int) -> "tuple[Any, list[torch.Tensor], dict[str, int]]":
        """Output and inputs of one call of the last replay, and what they were made from."""
        set_number = number % self.sets
        seed, replay = self._last
        made_from = {"sets": self.sets, "number": set_number, "seed": seed, "replay": replay}
        return self.outputs[number], self._inputs.tensors(set_number), made_from

    def facts(self) -> "dict[str, Any]":
        """What was built."""
        return {"sets": self.sets, "calls": self.calls, "replays": self.replays, "audit": _summed(self.audit)}

    def close(self) -> None:
        """Free graphs and memory."""
        self._chain.close()
        self._probe.close()
        self.outputs, self._graphs = [], []
        torch.cuda.empty_cache()


class _Probe:
    """A kernel of ours beside the candidate's: work that runs on behind the back of the timed graph slows it down."""

    def __init__(self, device: torch.device, stream: "torch.cuda.Stream") -> None:
        self._stream = stream
        source, target = (torch.ones(PROBE_ELEMENTS, device=device) for _ in range(2))
        self._held = (source, target)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with capturing(graph, torch.cuda.graph_pool_handle(), stream):
            torch.mul(source, 1.5, out=target)
        self._graph = graph
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        with torch.cuda.stream(stream):
            for event in self._events:
                event.record()
        torch.cuda.synchronize(device)
        first, last = (event.cuda_event for event in self._events)
        self._chain = driver.Chain([graph.raw_cuda_graph()] * PROBE_CALLS, first, last)

    def time(self) -> float:
        """Microseconds of one call."""
        gpu.spin(SPIN_US)
        self._chain.launch(self._stream.cuda_stream)
        self._stream.synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) * 1000 / PROBE_CALLS

    def close(self) -> None:
        self._chain.close()


@contextlib.contextmanager
def capturing(graph: "torch.cuda.CUDAGraph", pool: Any, stream: "torch.cuda.Stream") -> "Iterator[None]":
    """Capture; whatever ends it is told as NotCapturable by its first cause, which the end of the capture masks."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        try:
            graph.capture_begin(pool=pool, capture_error_mode="global")
            try:
                yield
            finally:
                graph.capture_end()
        except Exception as error:
            first: BaseException = error
            while (before := first.__cause__ or first.__context__) is not None:
                first = before
            if isinstance(first, Fault):
                raise first from None
            line = (str(first).strip().splitlines() or [""])[0][:200]
            raise NotCapturable(f"{type(first).__name__}: {line}") from None
        finally:
            driver.launch_error()  # a failed capture leaves one behind


def plan(
    input_bytes: int, output_bytes: int, call_us: float, *, l2_bytes: int, memory_bytes: float
) -> "tuple[int, int]":
    """How many sets of inputs and how many calls a window.

    Sets and outputs together exceed the L2 cache three times, with 3 to 64 sets; a window has 20 calls, or one for each
    set, and more until it takes 200 µs. A window of 2 ms has calls enough: held outputs of long calls would fill the
    memory. Where it does not suffice there are fewer sets, three at least.
    """
    each = max(1, input_bytes + output_bytes)
    sets = max(MIN_SETS, min(MAX_SETS, L2_FACTOR * l2_bytes // each + 1))
    while sets > MIN_SETS and sets * each > memory_bytes:
        sets -= 1
    calls = max(
        sets, min(CALLS, -(-int(ENOUGH_US) // max(1, int(call_us)))), -(-int(WINDOW_US) // max(1, int(call_us)))
    )
    if output_bytes:
        calls = max(sets, min(calls, int(memory_bytes // output_bytes)))
    return int(sets), int(calls)


def replays_for(window_us: float) -> int:
    """Replays a slice: seven, fewer where a slice would last too long, three at least."""
    return max(LEAST_REPLAYS, min(REPLAYS, int(SLICE_MS * 1000 / max(window_us, 1.0))))


def _summed(audits: "list[dict[str, Any]]") -> "dict[str, Any]":
    """The audit of the calls together: all of them must look alike, so the first one tells the kernels of a call."""
    kinds: dict[str, int] = {}
    for found in audits:
        for kind, count in found["kinds"].items():
            kinds[kind] = kinds.get(kind, 0) + count
    first = audits[0]["kernels"] if audits else {}
    return {
        "kinds": kinds,
        "kernels": first,
        "alike": all(found["kernels"] == first for found in audits),
        "least": min((sum(found["kinds"].values()) for found in audits), default=0),
        "programmatic": sum(found["programmatic"] for found in audits),
    }


def _foreign_us() -> int:
    """Processor time of this process's other threads so far, ended ones too, in microseconds."""
    return (_process_time() - _thread_time()) // 1000


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()

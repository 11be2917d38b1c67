"""The GPU that a device's name means, what it and the processor are doing, and the machine-wide lease.

No torch and no CUDA context: NVML only asks the driver.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from cuda_tui.errors import Cancelled, InfrastructureError, UsageError
from cuda_tui.nvml import GpuReading, Nvml, throttle_words
from cuda_tui.records import Record

LEASE_POLL_S = 0.2
LEASE_FOLDERS = (Path("/run/lock"), Path("/tmp"))
SAMPLE_S = 0.2  # a sample takes the driver 1 to 1.6 ms, which no measurement notices
JOIN_S = 5.0  # a driver that hangs in a question must not hang us


# ---- which GPU


class GpuPlace(Record):
    """Where NVML has the GPU that torch calls `device`. `mig` is the slice's uuid where it is only part of a GPU."""

    device: str  # "cuda:1"
    index: int
    uuid: str | None = None
    name: str | None = None
    mig: str | None = None

    @property
    def lease_name(self) -> str:
        """What `lease` holds: the same for every process of the machine, however it numbers the GPUs."""
        return f"gpu-{self.mig or self.uuid or self.index}"


def device_number(device: str) -> int:
    """1 of "cuda:1", 0 of "cuda". Raises UsageError for what is no CUDA device."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number.isdecimal() or device == "cuda"):
        raise UsageError(f"{device!r} is no device.", hint="Write cpu, cuda, or cuda:1 for the second GPU.")
    return int(number or 0)


def gpu_index(device: str, environ: Mapping[str, str], *, nvml: Nvml | None = None) -> GpuPlace | None:
    """The GPU that "cuda" or "cuda:N" means under CUDA_VISIBLE_DEVICES; None where NVML cannot say.

    Raises UsageError where it says that there is no such GPU. Where the GPUs are of different models, CUDA numbers
    them as NVML does only under CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    nvml = nvml or Nvml.open()
    number = device_number(device)
    if nvml.count == 0:
        return None
    places = visible_gpus(environ, nvml=nvml)
    if number < len(places):
        return msgspec.structs.replace(places[number], device=device)
    raise UsageError(_no_such_gpu(number, places, environ), hint="Name one of them with --device, or work on the CPU.")


def _no_such_gpu(number: int, places: tuple[GpuPlace, ...], environ: Mapping[str, str]) -> str:
    limit = environ.get("CUDA_VISIBLE_DEVICES")
    who = "this machine has" if limit is None else f"CUDA_VISIBLE_DEVICES={limit} leaves"
    named = ", ".join(f"{index} ({place.name or 'unnamed'})" for index, place in enumerate(places))
    return f"there is no GPU {number}; {who} {len(places) or 'none'}{f': {named}' if named else ''}"


def visible_gpus(environ: Mapping[str, str], *, nvml: Nvml) -> tuple[GpuPlace, ...]:
    """The GPUs that CUDA sees, in its order: all of them, or those that CUDA_VISIBLE_DEVICES names.

    As CUDA does it, the first word that names nothing ends the list, and so does one that was there before.
    """
    every = [_place(nvml, index) for index in range(nvml.count)]
    limit = environ.get("CUDA_VISIBLE_DEVICES")
    if limit is not None:
        every = _named(limit, every, nvml)
    numbered = enumerate(every)
    return tuple(msgspec.structs.replace(place, device=f"cuda:{number}") for number, place in numbered)


def _place(nvml: Nvml, index: int) -> GpuPlace:
    slices = nvml.slices(index)
    mig = slices[0] if slices else None  # of a GPU that is cut up, CUDA sees one slice
    return GpuPlace(device="", index=index, uuid=nvml.uuid(index), name=nvml.name(index), mig=mig)


def _named(limit: str, every: list[GpuPlace], nvml: Nvml) -> list[GpuPlace]:
    found: list[GpuPlace] = []
    for word in limit.split(","):
        place = _one_named(word.strip(), every, nvml)
        if place is None or place in found:
            break
        found.append(place)
    return found


def _one_named(word: str, every: list[GpuPlace], nvml: Nvml) -> GpuPlace | None:
    """By number, by uuid or the beginning of one, or by the uuid of a slice."""
    if word.isdecimal():
        return every[int(word)] if int(word) < len(every) else None
    if word.startswith("MIG-"):
        with_slice = (place for place in every if word in nvml.slices(place.index))
        return next((msgspec.structs.replace(place, mig=word) for place in with_slice), None)
    matching = [place for place in every if word.startswith("GPU-") and (place.uuid or "").startswith(word)]
    return matching[0] if len(matching) == 1 else None


# ---- what it does


class MachineReading(Record):
    """Processor and memory at one moment; `cpu_load` is cores busy since the reading before."""

    cpu_load: float | None = None
    memory_used_bytes: int | None = None
    gpu: GpuReading | None = None


def processor_ticks(proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """Clock ticks of all cores together since the machine started: (busy, all). None where the system has no count."""
    try:
        words = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        ticks = [int(word) for word in words]
    except (OSError, ValueError):
        return None
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return sum(ticks) - idle, sum(ticks)


class Machine:
    """Samples processor, memory and, where asked for, one GPU. Call `sample` from one thread, about once a second."""

    def __init__(self, *, gpu: GpuPlace | None = None, nvml: Nvml | None = None, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._gpu = gpu
        self._nvml = nvml or Nvml.open() if gpu is not None else None
        self._before = processor_ticks(proc)

    def sample(self) -> MachineReading:
        """The load since the sample before."""
        now = processor_ticks(self._proc)
        load = None
        if now and self._before and now[1] > self._before[1]:
            cores = os.cpu_count() or 1
            load = cores * (now[0] - self._before[0]) / (now[1] - self._before[1])
        self._before = now
        gpu = self._nvml.read(self._gpu.index, mig=self._gpu.mig) if self._nvml and self._gpu else None
        return MachineReading(cpu_load=load, memory_used_bytes=self._memory(), gpu=gpu)

    def _memory(self) -> int | None:
        try:
            lines = (self._proc / "meminfo").read_text(encoding="ascii").splitlines()
            values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
            return values["MemTotal"] - values["MemAvailable"]
        except (OSError, ValueError, KeyError):
            return None


class Sampled(Record):
    """What was seen of one GPU over a stretch of time. What NVML did not say is None, with the reason in `missing`."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    clock_mhz: tuple[int, int] | None = None  # lowest and highest
    power_w: float | None = None  # highest
    temperature_c: int | None = None  # highest
    throttle: tuple[str, ...] = ()  # every reason that was seen
    throttle_bits: int = 0  # NVML's bits of all samples together
    tenants: int | None = None  # the most processes that were not ours at one time
    samples: int = 0
    missing: dict[str, str] = msgspec.field(default_factory=dict)


class Sampler:
    """Watches one GPU from a thread of its own while the `with` block runs, five times a second.

    `own` returns the process ids that are ours. A driver that numbers processes in another name space than ours knows
    none of them; then all but as many as `contexts`, the processes of ours that use the GPU, are taken for tenants.
    Nothing here raises because of the driver: `place` None means that NVML cannot say which GPU it is.

        with Sampler(place, own=pids) as sampler:
            measure()
        facts = sampler.found()
    """

    def __init__(
        self,
        place: GpuPlace | None,
        *,
        own: Callable[[], Collection[int]] = lambda: (),
        contexts: int = 0,
        nvml: Nvml | None = None,
        interval_s: float = SAMPLE_S,
    ) -> None:
        self._place = place
        self._own = own
        self._contexts = contexts
        self._nvml = nvml or Nvml.open()
        self._interval_s = interval_s
        self._readings: list[GpuReading] = []
        self._tenants: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        if self._place is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        if self._place is not None:
            self._thread.join(timeout=JOIN_S)

    def _run(self) -> None:
        while True:
            self.sample()
            if self._stop.wait(self._interval_s):
                return

    def sample(self) -> None:
        """One reading more."""
        if self._place is None:
            return
        processes = self._nvml.processes(self._place.index)
        if processes is not None:
            self._tenants.append(_tenants(processes, own=self._own(), contexts=self._contexts))
        self._readings.append(self._nvml.read(self._place.index, mig=self._place.mig))

    def found(self) -> Sampled:
        """What was seen so far."""
        readings = tuple(self._readings)
        if not readings:
            return Sampled(missing={"gpu": self._nvml.reason or "not sampled"})
        clocks = [item.clock_mhz for item in readings if item.clock_mhz is not None]
        bits = 0
        for item in readings:
            bits |= item.throttle_bits or 0
        return Sampled(
            name=readings[-1].name,
            uuid=readings[-1].uuid,
            driver=readings[-1].driver,
            clock_mhz=(min(clocks), max(clocks)) if clocks else None,
            power_w=max((item.power_w for item in readings if item.power_w is not None), default=None),
            temperature_c=max(
                (item.temperature_c for item in readings if item.temperature_c is not None), default=None
            ),
            throttle=throttle_words(bits),
            throttle_bits=bits,
            tenants=max(self._tenants, default=None),
            samples=len(readings),
            missing=readings[-1].missing,
        )


def _tenants(processes: Collection[int], *, own: Collection[int], contexts: int) -> int:
    ours = set(own).intersection(processes)
    return len(set(processes) - ours) if ours else max(0, len(processes) - contexts)


# ---- the lease


@contextlib.contextmanager
def lease(
    name: str,
    *,
    wait_s: float = 0.0,
    on_wait: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """Hold a device ("gpu-<uuid>", "cpu") for the whole machine; it is freed when the holder dies.

    Waits up to `wait_s`, telling `on_wait` once who holds it. Raises InfrastructureError naming the holder's pid, and
    Cancelled where `cancel` is set while it waits.
    """
    descriptor = _open_lease(name, folder)
    try:
        deadline, told = time.monotonic() + wait_s, False
        while not _take(descriptor):
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if time.monotonic() >= deadline:
                raise InfrastructureError(
                    f"{name} is in use by another measurement (pid {holder}).", hint="Wait for it, or end that process."
                )
            if cancel is not None and cancel.is_set():
                raise Cancelled("cancelled")
            if on_wait is not None and not told:
                on_wait(f"waiting for {name}, in use by pid {holder}")
                told = True
            time.sleep(LEASE_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def _open_lease(name: str, folder: Path | None) -> int:
    folder = folder or next((item for item in LEASE_FOLDERS if os.access(item, os.W_OK)), Path("/tmp"))
    path = folder / f"cuda-tui-{''.join(letter if letter.isalnum() else '-' for letter in name)}.lock"
    # Opened without O_CREAT first: in a sticky folder the kernel refuses O_CREAT on another user's file.
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT):
        with contextlib.suppress(FileNotFoundError):
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except PermissionError as error:
                raise InfrastructureError(f"The lease {path} cannot be opened: {error.strerror}") from None
            if flags & os.O_CREAT:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, 0o666)
            return descriptor
    raise InfrastructureError(f"The lease {path} cannot be made.")


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

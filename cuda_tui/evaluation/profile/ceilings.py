"""What this device was measured to reach, kept for the machine: one file for each device, driver and torch."""

import hashlib
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cuda_tui.evaluation.report import Ceiling
from cuda_tui.records import Record, encode

VERSION = "1"  # of the way they are measured
STEADY = 0.1  # the largest spread of a rate that is kept


class Kept(Record):
    """A file of the cache: what was measured, and on what."""

    device: str
    uuid: str
    driver: str
    torch: str
    ceilings: tuple[Ceiling, ...]


def device_ceilings(
    cache: Path, device: dict[str, Any], *, driver: str, measure: Callable[[], dict[str, list[float]]]
) -> tuple[Ceiling, ...]:
    """From the machine's cache, else measured now and kept. `device` is what `worker.profiling.device_facts` says."""
    path = _path(cache, device, driver)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        if kept.ceilings:
            return kept.ceilings
    except (OSError, msgspec.MsgspecError):
        pass  # not measured yet, or written by another version: it is measured, and written anew
    found = tuple(_ceiling(name, rates) for name, rates in measure().items() if rates)
    if any(item.spread > STEADY for item in found):
        return found  # something else was running: good for this once, not to be kept
    record = Kept(device=device["name"], uuid=device["uuid"], driver=driver, torch=device["torch"], ceilings=found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(record))
    return found


def _path(cache: Path, device: dict[str, Any], driver: str) -> Path:
    identity = "\0".join([VERSION, device["uuid"], device["name"], driver, device["torch"]])
    return cache / "ceilings" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def _ceiling(name: str, rates: list[float]) -> Ceiling:
    middle = statistics.median(rates)
    return Ceiling(name=name, value=middle, spread=(max(rates) - min(rates)) / 2 / middle, samples=len(rates))


def rate(ceilings: tuple[Ceiling, ...], name: str) -> float | None:
    """The rate of that name."""
    return next((item.value for item in ceilings if item.name == name), None)


def matrix_rate(ceilings: tuple[Ceiling, ...], dtype: str, *, tf32: bool) -> float | None:
    """The rate that products of this type can reach; fp32's where the type has none of its own."""
    name = {"float32": "tf32" if tf32 else "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(dtype, "fp32")
    return rate(ceilings, name)

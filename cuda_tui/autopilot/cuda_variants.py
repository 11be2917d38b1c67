"""Launches worth measuring for one group on CUDA: the rules' own, and others beside it."""

from dataclasses import dataclass

from cuda_tui.autopilot.cuda_shape import MULTIPROCESSORS, CudaTuning, Form, Shape, choose, rows_of
from cuda_tui.autopilot.online import joined_walks
from cuda_tui.autopilot.plan import Plan
from cuda_tui.words import counted

TIGHT = 32  # elements of a row that a thread of more than 512 holds without spilling


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A launch, and what may speak for it: the rest of a sentence that begins with the kernel's name."""

    tuning: CudaTuning
    title: str
    reason: str


def rules(plan: Plan, *, clusters: bool) -> CudaTuning:
    """The launch that is tried first. `clusters`: whether all GPUs that the code is for have them (from 9.0 on).

    A cluster holds a row that is too long for one block, so that it is read once. It is taken where a block would walk
    the row again, or would have to spill it, and where all rows together fill the GPU.
    """
    if not clusters or not plan.reds or plan.columns is not None or joined_walks(plan)[0].passes == 1:
        return CudaTuning()
    shape, cluster = choose(plan, CudaTuning()), choose(plan, _CLUSTER.tuning)
    spills = shape.form is Form.HELD and shape.x > 512 and shape.items * shape.width > TIGHT
    fills = cluster.form is Form.CLUSTER and rows_of(plan) * cluster.chunks >= MULTIPROCESSORS
    return _CLUSTER.tuning if fills and (spills or not shape.holds) else CudaTuning()


def variants(plan: Plan, *, clusters: bool) -> list[Variant]:
    """Those that differ from the rules' own choice and from each other, the most promising first."""
    shape = choose(plan, rules(plan, clusters=clusters))
    seen, found = {shape}, []
    once = joined_walks(plan)[0].passes == 1  # then there is nothing to keep for a second walk
    for variant in _ideas(shape):
        if variant is _CLUSTER and (once or not clusters):
            continue
        other = choose(plan, variant.tuning)
        if other not in seen:
            seen.add(other)
            found.append(variant)
    return found


def _ideas(shape: Shape) -> list[Variant]:
    match shape.form:
        case Form.FLAT | Form.TILED:
            return _elementwise(shape)
        case Form.HELD:
            cluster = [_CLUSTER] if shape.x > 512 else []
            return [*cluster, *_held(shape)]
        case Form.CLUSTER:
            return [
                _variant("One block a row", "with one block for each row needs no meeting of blocks"),
                _variant("Larger clusters", "with twice as many blocks for each row holds less in each",
                         form=Form.CLUSTER, chunks=min(2 * shape.chunks, 8)),
            ]  # fmt: skip
        case Form.WALKED:
            return [
                _CLUSTER,
                _variant("Smaller blocks", "with 256 threads a row has more rows at once", threads=256),
                _variant("Larger blocks", "with 1024 threads a row has fewer rows at once, so that they stay in L2",
                         threads=1024),
                _variant("More in flight", "with 8 loads a thread hides more latency", items=8),
            ]  # fmt: skip
        case Form.SPLIT:
            return [
                _variant("More in flight", "with 8 loads a thread hides more latency", items=8),
                _variant("Fewer blocks a row", "in half as many parts has longer walks and fewer partial results",
                         chunks=max(shape.chunks // 2, 1)),
                _variant("Larger blocks", "with 512 threads joins more before it writes partial results", threads=512),
            ]  # fmt: skip
        case Form.COLUMN_HELD:
            return [
                _variant("Larger blocks", "with 256 threads a block", threads=256),
                _variant("Two columns a thread", "with two columns a thread has wider loads", width=2),
                _variant("Walked columns", "with columns shared between threads needs fewer registers",
                         form=Form.COLUMNS),
            ]  # fmt: skip
        case Form.COLUMNS | Form.COLUMN_SPLIT:
            return [
                _variant("More in flight", "with 8 loads a thread hides more latency", items=8),
                _variant("Single columns", "with one column a thread has more blocks", width=1),
            ]


def _elementwise(shape: Shape) -> list[Variant]:
    other = 1 if shape.items > 1 else 2
    return [
        _variant("Other tiles", f"with {counted(other, 'vector')} a thread and tile", items=other),
        _variant("Larger blocks", "with 512 threads a block", threads=512),
        _variant("More in flight", "with 4 vectors a thread has more loads in flight", items=4),
        _variant("Resident blocks", "with only as many blocks as run at once starts no block twice", resident=True,
                 form=Form.FLAT),
    ]  # fmt: skip


def _held(shape: Shape) -> list[Variant]:
    wider = 64 if shape.x == 32 else min(shape.x * 2, 1024)
    return [
        _variant("More threads a row", f"with {wider} threads for each row holds less in each", threads=wider),
        _variant("Fewer threads a row", f"with {max(shape.x // 2, 4)} threads for each row has more loads in flight",
                 threads=max(shape.x // 2, 4)),
        _variant("Narrower vectors", "with half the vector has more even tiles", width=max(shape.width // 2, 1)),
    ]  # fmt: skip


def _variant(title: str, reason: str, **changed: object) -> Variant:
    return Variant(tuning=CudaTuning(**changed), title=title, reason=reason)  # type: ignore[arg-type]


_CLUSTER = _variant(
    "Clusters", "with the registers of several blocks for each row reads it only once", form=Form.CLUSTER
)

"""In which order baselines are loaded, and what becomes of those that do not load."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from cuda_tui.evaluation.baselines import Baselines, Way
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.workers import WorkerFault

WAYS = (
    Way(name="eager", processes=2),
    Way(name="compile", processes=2, mode="default"),
    Way(name="tuned", processes=2, mode="max-autotune-no-cudagraphs", tunes=True),
    Way(name="graphs", processes=1, mode="max-autotune", wall_only=True, tunes=True),
)


class Bench:
    """Stands for the runtime and the reference, and notes what was asked of their workers."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.asked: list[str] = []
        self.alone = False
        self.closed = 0
        self._noting = threading.Lock()

    def oracle(self, folder: Path, *, threads: int = 1, cpu: int | None = None) -> "Bench":
        return self

    def start(self, cancel: object) -> None:
        return

    def load_into(self, worker: object, cancel: object) -> dict[str, Any]:
        return {}

    def limit_s(self, calls: int) -> float:
        return 1.0

    def ask(self, operation: str, *, mode: str, **_: Any) -> dict[str, Any]:
        if mode == self.broken:
            raise WorkerFault({"type": "NotCompiled", "message": "it ran in eager mode", "code": ""})
        with self._noting:
            self.asked.append(f"{mode} alone" if self.alone else mode)
        return {"graphs": 1, "graph_breaks": 0}

    def close(self) -> None:
        self.closed += 1

    @contextlib.contextmanager
    def to_itself(self) -> Iterator[None]:
        self.alone = True
        yield
        self.alone = False


def started(bench: Bench) -> Baselines:
    """All ways, loaded."""
    baselines = Baselines(cast(Runtime, bench), cast(Reference, bench), Path("model.py"), ways=WAYS)
    baselines.start(cpu=None, at_once=3, alone=bench.to_itself)
    return baselines


def test_first_process_that_tunes_has_the_machine_to_itself_and_the_others_follow() -> None:
    bench = Bench()
    baselines = started(bench)
    assert [baseline.name for baseline in baselines.ready()] == ["eager", "compile", "tuned", "graphs"]
    assert [baseline.processes for baseline in baselines.ready()] == [2, 2, 2, 1]
    assert bench.asked[:3] == ["default", "default", "max-autotune-no-cudagraphs alone"]
    assert sorted(bench.asked[3:]) == ["max-autotune", "max-autotune-no-cudagraphs"]
    started_before = len(bench.asked)
    baselines.start(cpu=None)
    assert len(bench.asked) == started_before


def test_compile_that_does_not_load_is_unavailable_with_its_reason() -> None:
    baselines = started(Bench(broken="default"))
    assert [baseline.name for baseline in baselines.ready()] == ["eager", "tuned", "graphs"]
    assert [(state.name, state.reason) for state in baselines.unavailable()] == [("compile", "it ran in eager mode")]


def test_baselines_are_enlarged_for_the_weaker_method() -> None:
    baselines = started(Bench())
    baselines.enlarge(("eager", "compile"), 7)
    assert [baseline.processes for baseline in baselines.ready()] == [7, 7, 2, 1]

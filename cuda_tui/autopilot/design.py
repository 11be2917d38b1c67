"""What the autopilot knows of a task: its groups with names and estimates, and how to write a candidate from some."""

import tomllib
from dataclasses import dataclass, field
from typing import Any

from cuda_tui.autopilot.cpp_nest import Tuning
from cuda_tui.autopilot.cuda_shape import CudaTuning
from cuda_tui.autopilot.draft import Draft, kernel_name, write_draft
from cuda_tui.autopilot.estimate import Estimate, Machine, estimate, machine_for, whole_us
from cuda_tui.autopilot.fuse import Fusion, Group, fuse
from cuda_tui.autopilot.graph import Graph, load
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.module import reusable, schedule
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.autopilot.source import Source


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """The lines of task.toml that matter here."""

    file: str = "model.py"
    class_name: str = "Model"
    device: str = "cpu"

    @classmethod
    def read(cls, text: str) -> "TaskFacts":
        """From the file's text; what is missing keeps its default."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            values = {}
        known = {key: values[key] for key in ("file", "class_name", "device") if isinstance(values.get(key), str)}
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A choice of groups, by index, and what is tuned in them."""

    groups: tuple[int, ...]
    tuning: tuple[tuple[int, Tuning | CudaTuning], ...] = ()


@dataclass
class Design:
    """A task, analysed. Groups are ordered by predicted saving, the largest first."""

    graph: Graph
    machine: Machine
    device: str
    source: Source
    fusion: Fusion
    groups: list[Group] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, trace: dict[str, Any], facts: TaskFacts, source_text: str, *, machine: Machine | None = None
    ) -> "Design":
        """Raises Unfusible where model_new.py cannot be written from this source, ValueError for broken source."""
        graph = normalise(load(trace))
        if graph.mutations:
            raise Unfusible(
                f"forward changes {', '.join(graph.mutations[:3])}, which a fused forward would have to repeat"
            )
        source = Source(source_text, facts.class_name)
        machine = machine or machine_for(facts.device)
        design = cls(graph, machine, facts.device, source, fuse(graph, device=facts.device))
        design._rank()
        return design

    def _rank(self) -> None:
        units = schedule(self.graph, self.fusion.groups)
        found: list[tuple[float, Group, Estimate]] = []
        for unit in units:
            if unit.group is not None:
                reuses = len(reusable(self.graph, units, unit))
                estimated = estimate(unit.group, self.graph, self.machine, reuses=reuses)
                found.append((-estimated.saved_us, unit.group, estimated))
        found.sort(key=lambda item: item[0])
        self.groups = [group for _, group, _ in found]
        self.estimates = [estimated for _, _, estimated in found]
        taken: set[str] = set()
        for group in self.groups:
            name, number = kernel_name(self.graph, group), 2
            while name in taken:
                name, number = f"{kernel_name(self.graph, group)}_{number}", number + 1
            taken.add(name)
            self.names.append(name)

    @property
    def promising(self) -> tuple[int, ...]:
        """Groups that should gain something."""
        return tuple(index for index, item in enumerate(self.estimates) if item.saved_us > 0)

    @property
    def whole_us(self) -> float:
        """What the estimate says that eager takes."""
        return whole_us(self.graph, self.machine)

    def works(self, index: int) -> str:
        """The operators of a group, in short."""
        ops = [self.graph.nodes[name].op.strip("_") for name in self.groups[index].work]
        return ", ".join(ops) if len(ops) <= 6 else f"{', '.join(ops[:3])}, ... {ops[-1]}"

    def write(self, candidate: Candidate) -> Draft:
        """The candidate's files. Raises Unfusible."""
        groups = tuple(self.groups[index] for index in candidate.groups)
        tuning = {f"group:{self.groups[index].outputs[0]}": value for index, value in candidate.tuning}
        named = {f"group:{self.groups[index].outputs[0]}": self.names[index] for index in candidate.groups}
        return write_draft(
            self.graph, groups, self.source, names_of_groups=named, tuning=tuning,
            device=self.device,
        )  # fmt: skip

    def kernel_names(self, candidate: Candidate) -> dict[int, str]:
        """The kernel of each group; groups with the same loops share one."""
        kernels = self.write(candidate).kernels
        return {index: kernels[f"group:{self.groups[index].outputs[0]}"].name for index in candidate.groups}

    def library_calls(self) -> str:
        """The operators that stay with PyTorch because libraries do them best."""
        ops = [node.op for node in self.graph.nodes.values() if node.flop > 4 * node.output.numel]
        counted = {op: ops.count(op) for op in dict.fromkeys(ops)}
        return ", ".join(f"{count} {op}" if count > 1 else op for op, count in counted.items())

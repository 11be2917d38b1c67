"""What the autopilot knows of a task: its groups with names and estimates, and how to write a candidate from some."""

import re
import tomllib
from dataclasses import dataclass, field, replace
from typing import Any

from cuda_tui.autopilot.cpp_nest import Tuning
from cuda_tui.autopilot.cuda_shape import CudaTuning, Form
from cuda_tui.autopilot.cuda_variants import rules
from cuda_tui.autopilot.draft import Draft, kernel_name, write_draft
from cuda_tui.autopilot.estimate import Estimate, Machine, estimate, machine_for, whole_us
from cuda_tui.autopilot.fuse import Fusion, Group, fuse
from cuda_tui.autopilot.graph import Graph, load
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.module import reusable, schedule
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.autopilot.source import Source

CLUSTERS_FROM = 9  # the major compute capability


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """The lines of task.toml that matter here."""

    file: str = "model.py"
    class_name: str = "Model"
    device: str = "cpu"
    architectures: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> "TaskFacts":
        """From the file's text; what is missing keeps its default."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            values = {}
        known = {key: values[key] for key in ("file", "class_name", "device") if isinstance(values.get(key), str)}
        listed = values.get("architectures")
        return cls(**known, architectures=tuple(map(str, listed)) if isinstance(listed, list) else ())

    def machine(self, gpu: dict[str, Any]) -> Machine:
        """What is known of the processor; `gpu` as in a trace. Targets that are named count before the GPU's own."""
        targets = [re.search(r"(\d+?)\.?\d[af]?(\+PTX)?$", name) for name in self.architectures]
        majors = [int(found[1]) for found in targets if found] or [(gpu.get("capability") or (0, 0))[0]]
        return machine_for(self.device, name=gpu.get("name", ""), clusters=min(majors) >= CLUSTERS_FROM)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A choice of groups, by index, and what is tuned in them."""

    groups: tuple[int, ...]
    tuning: tuple[tuple[int, Tuning | CudaTuning], ...] = ()

    def only(self, groups: tuple[int, ...]) -> "Candidate":
        """Some of the groups, tuned as they are."""
        return Candidate(groups=groups, tuning=tuple(item for item in self.tuning if item[0] in groups))


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
    rules: list[CudaTuning] = field(default_factory=list)  # the launch that the rules choose; empty on the CPU

    @classmethod
    def of(cls, trace: dict[str, Any], facts: TaskFacts, source_text: str) -> "Design":
        """Raises Unfusible where model_new.py cannot be written from this source, ValueError for broken source."""
        graph = normalise(load(trace))
        if graph.mutations:
            raise Unfusible(
                f"forward changes {', '.join(graph.mutations[:3])}, which a fused forward would have to repeat"
            )
        source = Source(source_text, facts.class_name)
        machine = facts.machine(trace.get("gpu") or {})
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
        if self.machine.is_gpu:
            self.rules = [rules(group.plan, clusters=self.machine.clusters) for group in self.groups]
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
        chosen = {**{index: self.rules[index] for index in candidate.groups if self.rules}, **dict(candidate.tuning)}
        tuning = {f"group:{self.groups[index].outputs[0]}": value for index, value in chosen.items()}
        named = {f"group:{self.groups[index].outputs[0]}": self.names[index] for index in candidate.groups}
        return write_draft(
            self.graph, groups, self.source, names_of_groups=named, tuning=tuning,
            device=self.device,
        )  # fmt: skip

    def without_clusters(self, candidate: Candidate) -> Candidate:
        """The same groups, none of them launched as clusters."""
        chosen = {**{index: self.rules[index] for index in candidate.groups if self.rules}, **dict(candidate.tuning)}
        plain = {
            index: CudaTuning() for index, item in chosen.items()
            if isinstance(item, CudaTuning) and item.form is Form.CLUSTER
        }  # fmt: skip
        return replace(candidate, tuning=tuple({**dict(candidate.tuning), **plain}.items()))

    def kernel_names(self, candidate: Candidate) -> dict[int, str]:
        """The kernel of each group; groups with the same loops share one."""
        kernels = self.write(candidate).kernels
        return {index: kernels[f"group:{self.groups[index].outputs[0]}"].name for index in candidate.groups}

    def library_calls(self) -> str:
        """The operators that stay with PyTorch because libraries do them best."""
        ops = [node.op for node in self.graph.nodes.values() if node.flop > 4 * node.output.numel]
        counted = {op: ops.count(op) for op in dict.fromkeys(ops)}
        return ", ".join(f"{count} {op}" if count > 1 else op for op, count in counted.items())

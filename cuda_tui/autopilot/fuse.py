"""Which operators become one kernel.

Every operator that has a rule starts as a group of its own. Groups that are neighbours, or read the same large tensor,
are merged wherever one loop nest can hold both. Views and constants cost nothing, so each group takes its own copy of
those it reads; and where computing an elementwise value again is cheaper than reading it, each reader computes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import cuda_tui.autopilot.lower_pointwise
import cuda_tui.autopilot.lower_reductions
import cuda_tui.autopilot.lower_views  # noqa: F401  (importing registers the rules)
from cuda_tui.autopilot.graph import Graph, Node
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.lower import HANDLERS
from cuda_tui.autopilot.plan import COSTLY, ON_CPU, ON_CUDA, Plan, make_plan

MADE_FROM_NOTHING = frozenset(["zeros", "ones", "full", "arange", "scalar_tensor", "tril", "triu"])
SHARED_BYTES = 1 << 16  # groups that read the same tensor are merged when it is at least this large
COPIED_COSTLY = 1  # costly operators that a reader may compute again


@dataclass(frozen=True)
class Group:
    """Operators that one kernel computes. `members` includes views it takes along; `work` are the others."""

    members: frozenset[str]
    work: tuple[str, ...]
    outputs: tuple[str, ...]
    plan: Plan

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.plan.inputs)


@dataclass(frozen=True)
class Fusion:
    """The groups of a graph, in no particular order, and why the rest stays with PyTorch."""

    groups: tuple[Group, ...]
    left: dict[str, str]


@dataclass(frozen=True)
class _Draft:
    """A group in the making: what it computes, and which of that it computes on behalf of others."""

    work: frozenset[str]
    owned: frozenset[str]


@dataclass(eq=False)
class Fuser:
    """Finds the groups of one graph."""

    graph: Graph
    dtypes: frozenset[str] = ON_CPU
    left: dict[str, str] = field(default_factory=dict)
    drafts: list[_Draft] = field(default_factory=list)
    _plans: dict[tuple[frozenset[str], tuple[str, ...]], Plan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = {name: index for index, name in enumerate(self.graph.nodes)}
        self.free = {name for name, node in self.graph.nodes.items() if _is_free(node, self.graph)}

    def fuse(self) -> Fusion:
        """Groups, after merging, copying, and merging again."""
        for name in self.order:
            work = frozenset({name})
            if name not in self.free and self._plan(work, (name,)) is not None:
                self.drafts.append(_Draft(work, work))
        while self._merge_once(set()):
            pass
        for draft in list(self.drafts):
            self._copy_inputs(draft)
        self.drafts = [draft for draft in self.drafts if self._outputs(draft, self.drafts)]
        tried: set[frozenset[str]] = set()
        while self._merge_once(tried):
            pass
        return Fusion(tuple(group for draft in self.drafts for group in self._finished(draft)), self.left)

    def _finished(self, draft: _Draft) -> list[Group]:
        outputs = self._outputs(draft, self.drafts)
        plan = self._plan(draft.work, outputs)
        if plan is None or not plan.inputs:
            return []
        work = tuple(sorted(self._used(draft.work, outputs), key=self.order.__getitem__))
        return [Group(self._with_free(frozenset(work)), work, outputs, plan)]

    # ---- who needs what

    def _with_free(self, work: frozenset[str]) -> frozenset[str]:
        members, stack = set(work), list(work)
        while stack:
            for name in self.graph.nodes[stack.pop()].references:
                if name in self.free and name not in members:
                    members.add(name)
                    stack.append(name)
        return frozenset(members)

    def _reads(self, names: Iterable[str]) -> set[str]:
        """What nodes read, seen through views."""
        found: set[str] = set()
        for name in names:
            for source in self.graph.nodes[name].references:
                found |= self._reads([source]) if source in self.free else {source}
        return found

    def _inputs(self, draft: _Draft, outputs: Iterable[str] | None = None) -> set[str]:
        work = self._used(draft.work, outputs) if outputs is not None else draft.work
        return self._reads(work) - draft.work

    def _used(self, work: frozenset[str], outputs: Iterable[str]) -> set[str]:
        """The part of the work that the outputs depend on."""
        used: set[str] = set()
        stack = [name for name in outputs]
        while stack:
            name = stack.pop()
            if name in work and name not in used:
                used.add(name)
                stack.extend(self._reads([name]))
        return used

    def _needed(self, drafts: list[_Draft]) -> set[str]:
        """Values that must exist in memory."""
        needed = set(self._alone_reads)
        for draft in drafts:
            needed |= self._inputs(draft)
        return needed

    def _outputs(self, draft: _Draft, drafts: list[_Draft]) -> tuple[str, ...]:
        needed = self._needed(drafts)
        return tuple(name for name in self.order if name in draft.owned and name in needed)

    def _plan(self, work: frozenset[str], outputs: tuple[str, ...]) -> Plan | None:
        key = (work, outputs)
        if key not in self._plans:
            try:
                self._plans[key] = self._make_plan(work, outputs) if outputs else None
            except Unfusible as reason:
                self._plans[key] = None
                if len(work) == 1:
                    self.left[next(iter(work))] = str(reason)
        return self._plans[key]

    def _make_plan(self, work: frozenset[str], outputs: tuple[str, ...]) -> Plan:
        return make_plan(self.graph, self._with_free(work), outputs, dtypes=self.dtypes)

    # ---- merging

    def _merge_once(self, tried: set[frozenset[str]]) -> bool:
        """Merge the pair that saves most memory traffic; say whether any could be."""
        for left, right in self._neighbours(tried):
            merged = _Draft(left.work | right.work, left.owned | right.owned)
            tried.add(merged.work)
            drafts = [draft for draft in self.drafts if draft not in (left, right)] + [merged]
            outputs = self._outputs(merged, drafts)
            if self._runs_in_some_order(drafts) and self._plan(merged.work, outputs) is not None:
                self.drafts = drafts
                return True
        return False

    def _neighbours(self, tried: set[frozenset[str]]) -> list[tuple[_Draft, _Draft]]:
        """Pairs that pass tensors on, or read the same large ones; largest saving first."""
        inputs = [self._inputs(draft) for draft in self.drafts]
        needed = self._needed(self.drafts)
        pairs: list[tuple[int, int, int]] = []
        for one, two in combinations(range(len(self.drafts)), 2):
            left, right = self.drafts[one], self.drafts[two]
            passed = (inputs[two] & left.owned) | (inputs[one] & right.owned)
            shared = inputs[one] & inputs[two]
            if (left.work | right.work) in tried:
                continue
            if passed or any(self._bytes(name) >= SHARED_BYTES for name in shared):
                others = [inputs[index] for index in range(len(inputs)) if index not in (one, two)]
                inside = {name for name in passed if self._only_for_pair(name, others, needed)}
                saved = sum(map(self._bytes, passed | shared)) + sum(map(self._bytes, inside))
                pairs.append((-saved, one, two))
        return [(self.drafts[one], self.drafts[two]) for _, one, two in sorted(pairs)]

    def _only_for_pair(self, name: str, others: list[set[str]], needed: set[str]) -> bool:
        """Whether a value would no longer have to exist in memory."""
        alone = self._alone_reads
        return name in needed and name not in alone and not any(name in inputs for inputs in others)

    @cached_property
    def _alone_reads(self) -> set[str]:
        """What operators outside all groups, and forward's results, need."""
        grouped = set[str]().union(*(draft.work for draft in self.drafts))
        alone = [name for name in self.order if name not in grouped and name not in self.free]
        ends = [name for name in self.graph.output_names if name in self.free]
        return self._reads([*alone, *ends]) | set(self.graph.output_names)

    def _bytes(self, name: str) -> int:
        return self.graph.type_of(name).bytes

    def _runs_in_some_order(self, drafts: list[_Draft]) -> bool:
        """Whether no two units wait for each other."""
        owner = {name: index for index, draft in enumerate(drafts) for name in draft.owned}
        grouped = set[str]().union(*(draft.work for draft in drafts))
        units: dict[object, set[object]] = {
            index: {owner.get(name, name) for name in self._inputs(draft)} for index, draft in enumerate(drafts)
        }
        for name in self.order:
            if name not in grouped and name not in self.free:
                units[name] = {owner.get(source, source) for source in self._reads([name])}
        waiting = dict(units)
        while waiting:
            ready = [unit for unit, needs in waiting.items() if not any(need in waiting for need in needs)]
            if not ready:
                return False
            for unit in ready:
                del waiting[unit]
        return True

    # ---- copying

    def _copy_inputs(self, draft: _Draft) -> None:
        """Let a group compute elementwise inputs itself where that reads less than the input."""
        for name in sorted(self._inputs(draft), key=self._bytes, reverse=True):
            copied = self._elementwise_above(name)
            if not copied or self._costly(copied) > COPIED_COSTLY:
                continue
            index = self.drafts.index(draft)
            wider = _Draft(draft.work | copied, draft.owned)
            extra = self._inputs(wider) - self._inputs(draft)
            if sum(map(self._bytes, extra)) >= self._bytes(name):
                continue
            drafts = [*self.drafts[:index], wider, *self.drafts[index + 1 :]]
            if self._runs_in_some_order(drafts) and self._plan(wider.work, self._outputs(wider, drafts)) is not None:
                self.drafts = drafts
                draft = wider

    def _elementwise_above(self, name: str) -> frozenset[str]:
        """The elementwise operators that make a value from what exists anyway."""
        found: set[str] = set()
        stack = [name]
        while stack:
            node = self.graph.nodes.get(stack.pop())
            if node is None or node.name in found or node.name in self.free or not self._is_elementwise(node):
                continue
            found.add(node.name)
            stack.extend(self._reads([node.name]))
        return frozenset(found) if name in found else frozenset()

    def _is_elementwise(self, node: Node) -> bool:
        plan = self._plans.get((frozenset({node.name}), (node.name,)))
        return plan is not None and not plan.reds

    def _costly(self, names: frozenset[str]) -> int:
        return sum(self.graph.nodes[name].op in COSTLY for name in names)


def _is_free(node: Node, graph: Graph) -> bool:
    """Views, and tensors that are made from numbers alone."""
    if node.op not in HANDLERS:
        return False
    return node.view or (node.op in MADE_FROM_NOTHING and all(name in graph.nodes for name in node.references))


def fuse(graph: Graph, *, device: str = "cpu") -> Fusion:
    """The groups of a graph."""
    return Fuser(graph, ON_CUDA if device.startswith("cuda") else ON_CPU).fuse()

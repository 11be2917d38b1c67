"""The reference twice, as the user runs it and in fp64, and what both make of one draw."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from . import loading, precise, trees
from .gradients import gradients

TIE_TRIES = 2
TIE_EPSILONS = 8.0  # relative noise on the inputs, in epsilons of their type: what rounding inside a model may do


@dataclass
class Draw:
    """Inputs, and what the reference makes of them."""

    args_plan: trees.Plan
    inputs: "list[torch.Tensor]"
    reference: trees.Leaves
    eager: trees.Leaves
    inputs_after: "list[torch.Tensor]"
    state_seed: "int | None" = None
    ties: "dict[int, torch.Tensor]" = field(default_factory=dict)  # by output: where rounding decides an integer
    aliases: "dict[str, str]" = field(default_factory=dict)  # outputs of eager that share memory, by path


class Pair:
    """The user's model and its twin in fp64, or, where fp64 does not work, the model alone."""

    def __init__(self, construct: "Callable[[], torch.nn.Module]", module: ModuleType) -> None:
        self._construct = construct
        self._module = module
        with loading.seeded(0):
            self.model = construct()
        self.initial = {name: value.detach().clone() for name, value in loading.named_state(self.model).items()}
        self.double: torch.nn.Module | None = None
        self.why_not_double = ""

    def make_double(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> None:
        """Build the fp64 twin and try it on one draw; where that fails, remember why."""
        try:
            self.double = precise.model_in_double(self._construct())
            loading.load_state(self.double, self.initial)
            self.in_double(plan, inputs)
        except Exception as error:  # an operator without fp64, a cast by bits, no memory: the reason is shown
            self.double = None
            self.why_not_double = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"

    @property
    def dtype(self) -> str:
        """What the reference is computed in."""
        return "float64" if self.double is not None else "as the model runs"

    def set_state(self, seed: "int | None") -> None:
        """The state as constructed, or redrawn from a seed."""
        state = self.initial
        if seed is not None:
            state = loading.redraw_state(state, seed)
        loading.load_state(self.model, state)
        if self.double is not None:
            loading.load_state(self.double, state)

    def call(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> Any:
        """One call of the model as the user runs it, on these very tensors."""
        args, kwargs = trees.unflatten(plan, inputs, self._module)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def eager(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> trees.Leaves:
        """One call on copies."""
        return trees.flatten(self.call(plan, [precise.clone_strided(tensor) for tensor in inputs]), numbers=True)

    def in_double(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> trees.Leaves:
        """One call in fp64 on copies; the model's own result where there is no fp64 twin."""
        if self.double is None:
            leaves = self.eager(plan, inputs)
            leaves.tensors = [precise.as_double(tensor) for tensor in leaves.tensors]
            return leaves
        args, kwargs = trees.unflatten(plan, [precise.as_double(tensor) for tensor in inputs], self._module)
        return trees.flatten(precise.call_in_double(self.double, args, kwargs), numbers=True)

    def gradients(
        self, plan: trees.Plan, inputs: "list[torch.Tensor]", *, wrt_inputs: bool, seed: int, double: bool = False
    ) -> "dict[str, torch.Tensor | None]":
        """By parameter or input, None where none arrives: of the model as the user runs it, or of its fp64 twin."""

        def call(placed: "list[torch.Tensor]") -> Any:
            args, kwargs = trees.unflatten(plan, placed, self._module)
            return model(*args, **kwargs)

        if not double or self.double is None:
            model = self.model
            copies = [precise.clone_strided(tensor) for tensor in inputs]
            found = gradients(model, call, copies, inputs=wrt_inputs, seed=seed)
            return {
                name: precise.as_double(grad) if double and grad is not None else grad for name, grad in found.items()
            }
        model = self.double
        doubles = [precise.as_double(tensor) for tensor in inputs]
        with precise.in_double():
            return gradients(model, call, doubles, inputs=wrt_inputs, seed=seed)

    def refer(self, plan: trees.Plan, inputs: "list[torch.Tensor]", state_seed: "int | None", seed: int) -> Draw:
        """Both results for one draw; the state must have been set."""
        reference = self.in_double(plan, inputs)
        ties = self._ties(plan, inputs, reference, seed)
        after = [precise.clone_strided(tensor) for tensor in inputs]
        eager = trees.flatten(self.call(plan, after), numbers=True)
        aliases = aliases_of(eager, after, loading.named_state(self.model))
        # The model may hand out memory of its own that a later call overwrites.
        eager.tensors = [tensor.detach().clone() for tensor in eager.tensors]
        for index, path in enumerate(reference.paths):
            if path in aliases:
                reference.tensors[index] = reference.tensors[index].detach().clone()
        for index, tie in ties.items():
            tie |= eager.tensors[index] != reference.tensors[index]
        return Draw(plan, inputs, reference, eager, after, state_seed, ties, aliases)

    def _ties(
        self, plan: trees.Plan, inputs: "list[torch.Tensor]", reference: trees.Leaves, seed: int
    ) -> "dict[int, torch.Tensor]":
        """Where integer outputs (an argmax, a threshold) change when the inputs change by a rounding error."""
        whole = [index for index, tensor in enumerate(reference.tensors) if is_whole(tensor)]
        ties = {index: torch.zeros_like(reference.tensors[index], dtype=torch.bool) for index in whole}
        if not whole or self.double is None or not any(tensor.is_floating_point() for tensor in inputs):
            return ties
        generators = {device: torch.Generator(device).manual_seed(seed) for device in {t.device for t in inputs}}
        for _ in range(TIE_TRIES):
            noisy = trees.flatten(self._noisy(plan, inputs, generators), numbers=True)
            for index in whole:
                other, mine = noisy.tensors[index], reference.tensors[index]
                if other.shape == mine.shape:
                    ties[index] |= other != mine
        return ties

    def _noisy(
        self, plan: trees.Plan, inputs: "list[torch.Tensor]", generators: "dict[torch.device, torch.Generator]"
    ) -> Any:
        changed = []
        for tensor in inputs:
            double = precise.as_double(tensor)
            if tensor.is_floating_point():
                generator = generators[tensor.device]
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
                double += double * noise * (TIE_EPSILONS / 2 * torch.finfo(tensor.dtype).eps)
            changed.append(double)
        args, kwargs = trees.unflatten(plan, changed, self._module)
        assert self.double is not None
        return precise.call_in_double(self.double, args, kwargs)


def is_whole(tensor: torch.Tensor) -> bool:
    """Integers and bools."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def aliases_of(
    leaves: trees.Leaves, inputs: "list[torch.Tensor]", state: "dict[str, torch.Tensor]"
) -> "dict[str, str]":
    """Outputs that share memory with an input or with the state: path to owner."""
    owners = {_storage(tensor): f"input {number}" for number, tensor in enumerate(inputs) if tensor.numel()}
    owners |= {_storage(tensor): name for name, tensor in state.items() if tensor.numel()}
    return {
        path: owners[_storage(tensor)]
        for path, tensor in zip(leaves.paths, leaves.tensors, strict=True)
        if type(tensor) is torch.Tensor and tensor.numel() and _storage(tensor) in owners
    }


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()

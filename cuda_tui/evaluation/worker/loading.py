"""Import the user's file as their own command would, construct the model, and make inputs and state from seeds."""

import contextlib
import importlib
import importlib.util
import inspect
import os
import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from . import precise, trees


class Fault(Exception):
    """Something of the user's that cannot be used; `code` is one of the report's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def import_file(path: str, name: str, roots: "list[str]") -> ModuleType:
    """Import a file under a module name, registered before it runs, with `roots` first on sys.path.

    A file inside a package is imported as a member of that package, so that relative imports work.
    """
    for root in reversed([os.path.dirname(path), *roots]):
        if root in sys.path:
            sys.path.remove(root)
        sys.path.insert(0, root)
    package_root, dotted = package_of(path)
    if "." in dotted:
        sys.path.insert(0, package_root)
        return importlib.import_module(dotted)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Fault("REFERENCE_FAULT", f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def package_of(path: str) -> "tuple[str, str]":
    """The folder to put on sys.path and the dotted name of a file, by its chain of `__init__.py`."""
    folder, name = os.path.split(os.path.abspath(path))
    parts = [os.path.splitext(name)[0]]
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        parts.insert(0, package)
    return folder, ".".join(parts)


def split_arguments(given: Any) -> "tuple[tuple[Any, ...], dict[str, Any]]":
    """Positional and keyword arguments from a list, a tuple, a mapping, a pair of both, or a single value."""
    if isinstance(given, dict) or (hasattr(given, "keys") and hasattr(given, "__getitem__")):
        return (), {str(key): given[key] for key in given.keys()}  # noqa: SIM118  a mapping-like batch
    if isinstance(given, (list, tuple)) and not hasattr(given, "_fields"):
        if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    return (given,), {}


def call_or_value(module: ModuleType, name: str) -> Any:
    """What a function of no arguments returns, or the module's value of that name."""
    found = getattr(module, name)
    return found() if callable(found) else found


@contextlib.contextmanager
def seeded(seed: int) -> "Iterator[None]":
    """All customary generators seeded, so that a draw is a function of its seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))
    yield


def construct(module: ModuleType, class_name: str, init: "str | None", device: torch.device) -> torch.nn.Module:
    """The model, built by the user's class with the user's constructor arguments. The mode is the caller's to set."""
    cls = getattr(module, class_name, None)
    if cls is None:
        raise Fault("REFERENCE_FAULT", f"{module.__name__} has no class {class_name}")
    args, kwargs = split_arguments(call_or_value(module, init)) if init and hasattr(module, init) else ((), {})
    model = cls(*args, **kwargs)
    if not isinstance(model, torch.nn.Module):
        raise Fault("REFERENCE_FAULT", f"{class_name} is not a torch.nn.Module")
    return model.to(device)


def named_state(model: torch.nn.Module) -> "dict[str, torch.Tensor]":
    """Parameters, all buffers (non-persistent too) and plain tensor attributes, by qualified name; ties once."""
    state: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for prefix, part in model.named_modules():
        own = [*part._parameters.items(), *part._buffers.items()]
        own += [(name, value) for name, value in vars(part).items() if type(value) is torch.Tensor]
        for name, value in own:
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                state[f"{prefix}.{name}" if prefix else name] = value
    return state


def tied_names(model: torch.nn.Module) -> "dict[str, str]":
    """Further names of parameters and buffers that `named_state` lists under an earlier one: name to that one."""
    first = {id(value): name for name, value in named_state(model).items()}
    everything = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: first[id(value)] for name, value in everything if first[id(value)] != name}


def load_state(model: torch.nn.Module, values: "dict[str, torch.Tensor]") -> "list[str]":
    """Copy values into a model's state by name. Returns what does not fit, one sentence each."""
    problems = []
    state = named_state(model)
    for name, value in values.items():
        target = state.get(name)
        if target is None:
            problems.append(f"{name} is missing")
        elif target.shape != value.shape:
            problems.append(f"{name} has shape {tuple(target.shape)}, not {tuple(value.shape)}")
        else:
            with torch.no_grad():
                target.copy_(value)
    return problems


def redraw_state(state: "dict[str, torch.Tensor]", seed: int) -> "dict[str, torch.Tensor]":
    """New values of each floating tensor, in the range of the old ones; integer tensors stay.

    What is nowhere negative (variances, scales) stays positive. What is constant (ones, zeros) varies by a tenth of
    its size or 0.1, so that a candidate which assumes the initial value is found out.
    """
    fresh = {}
    generators: dict[torch.device, torch.Generator] = {}
    for name, old in state.items():
        if old.device not in generators:
            generators[old.device] = torch.Generator(old.device).manual_seed(seed)
        if not old.is_floating_point() or old.numel() == 0:
            fresh[name] = old.clone()
            continue
        source = old.detach().double()
        finite = torch.isfinite(source)  # a mask of 0 and -Inf keeps its Inf
        mean = source[finite].mean() if bool(finite.any()) else source.new_zeros(())
        spread = source[finite].std(correction=0) if bool(finite.any()) else source.new_zeros(())
        if spread < 1e-6 * mean.abs() or spread == 0:
            spread = torch.clamp(mean.abs() * 0.1, min=0.1)
        generator = generators[old.device]
        noise = torch.randn(source.shape, generator=generator, dtype=torch.float64, device=old.device)
        drawn = mean + spread * noise
        positive = bool((source[finite] >= 0).all()) and bool(mean > 0)
        drawn = drawn.abs() + 0.05 * mean if positive else drawn
        fresh[name] = torch.where(finite, drawn, source).to(old.dtype)
    return fresh


def draw_inputs(module: ModuleType, inputs: str, seed: int, device: "torch.device | None" = None) -> Any:
    """One draw of the user's inputs as (args, kwargs), made on a device where that is not the CPU."""
    with seeded(seed), device if device is not None and device.type != "cpu" else contextlib.nullcontext():
        return split_arguments(call_or_value(module, inputs))


def vary_constant(first: "list[torch.Tensor]", second: "list[torch.Tensor]", seed: int) -> "list[torch.Tensor]":
    """`second`, where a floating tensor that did not change between draws is permuted by the seed.

    Inputs functions that ignore the seed would otherwise show a candidate the same values in every draw.
    """
    generator = torch.Generator().manual_seed(seed)
    varied = []
    for before, after in zip(first, second, strict=True):
        same = before.shape == after.shape and before.is_floating_point() and torch.equal(before, after)
        if same and after.numel() > 1:
            order = torch.randperm(after.numel(), generator=generator).to(after.device)
            permuted = after.reshape(-1)[order].reshape(after.shape)
            after = precise.clone_strided(after).copy_(permuted)  # in the layout that the person's inputs have
        varied.append(after)
    return varied


def describe_file(module: ModuleType) -> "dict[str, Any]":
    """Module classes defined in a file and functions or values that may give inputs, for a person to choose from."""
    classes, functions, values = [], [], []
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__:
            classes.append({"name": name, "required": _required_arguments(value), "line": _line(value)})
        elif inspect.isfunction(value) and value.__module__ == module.__name__ and not _required(value):
            functions.append(name)
        elif not name.startswith("_") and isinstance(value, (list, tuple, dict)) and trees.flatten(value).tensors:
            values.append(name)
    return {"classes": classes, "functions": functions, "values": values}


def _line(cls: type) -> int:
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return 0


def _required_arguments(cls: type) -> "list[str]":
    try:
        return _required(cls)
    except (TypeError, ValueError):
        return []


def _required(function: Any) -> "list[str]":
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]

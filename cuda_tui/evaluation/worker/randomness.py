"""Find where a model draws random numbers, so that the message can name the line."""

import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class RandomOperators(TorchDispatchMode):
    """Collects "operator at file:line" for every random operator called from the user's file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.places: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._note(func)
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any) -> None:
        name = func.overloadpacket.__name__
        for frame in reversed(traceback.extract_stack()):
            if frame.filename == self.file:
                place = f"{name} at {frame.filename.rpartition('/')[2]}:{frame.lineno}"
                if place not in self.places:
                    self.places.append(place)
                return

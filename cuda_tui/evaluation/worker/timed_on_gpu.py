"""What a timed process on a GPU holds: its model captured as graphs, and the same model called in batches."""

from collections.abc import Callable
from typing import Any

import torch

from .batches import BatchTimer
from .graphs import Arguments, GraphTimer, NotCapturable


class Bench:
    """Both ways to time one model over one draw; each is made when it is asked for."""

    def __init__(
        self, call: "Callable[..., Any]", arguments: Arguments, given: "list[torch.Tensor]", changing: "list[bool]"
    ) -> None:
        self._made_from = (call, arguments, given, changing)
        self.graph: GraphTimer
        self.batch: BatchTimer
        self._made: list[Any] = []

    def prepare(self, how: str) -> "dict[str, Any]":
        """Make ready for "graph" (and "batch" beside it) or for "batch" alone. Says why no graph could be made."""
        facts: dict[str, Any] = {"not_capturable": "", "graph": None}
        if how == "graph":
            try:
                self.graph = GraphTimer(*self._made_from)
                self._made.append(self.graph)
                facts["graph"] = self.graph.facts()
            except NotCapturable as reason:
                facts["not_capturable"] = str(reason)
        self.batch = BatchTimer(*self._made_from)
        torch.cuda.synchronize()
        return facts

    def close(self) -> None:
        """Free graphs and memory."""
        for made in self._made:
            made.close()
        self._made = []
        torch.cuda.empty_cache()

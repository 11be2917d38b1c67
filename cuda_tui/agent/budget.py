"""Limits of one stretch of work: turns, tokens, wall time."""

from collections.abc import Iterator

from cuda_tui.agent.protocols import Budgets
from cuda_tui.events import BudgetReached
from cuda_tui.messages import Usage

WARN_AT = 0.8


class BudgetMeter:
    """Counts what was used. `reached` says once when 80% and when all of a budget is gone."""

    def __init__(self, budgets: Budgets, *, started_at: float) -> None:
        self._budgets = budgets
        self._started_at = started_at
        self._turns = 0
        self._tokens = 0
        self._said: set[tuple[str, bool]] = set()

    def count(self, usage: Usage) -> None:
        """Count one reply."""
        self._turns += 1
        parts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        self._tokens += sum(part or 0 for part in parts)

    def reached(self, *, now: float) -> Iterator[BudgetReached]:
        """The warnings and ends that are new since the last call."""
        for name, used, limit in (
            ("turns", float(self._turns), self._budgets.turns),
            ("tokens", float(self._tokens), self._budgets.tokens),
            ("wall time", now - self._started_at, self._budgets.wall_s),
        ):
            if limit is None or used < WARN_AT * limit:
                continue
            exhausted = used >= limit
            if (name, exhausted) not in self._said:
                self._said.add((name, exhausted))
                yield BudgetReached(budget=name, used=used, limit=float(limit), exhausted=exhausted)

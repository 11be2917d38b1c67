"""A process that is ready to be timed, whichever side it is on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

# For each input: where the first call's changed element lies, as a share of its length; None leaves the input alone.
Positions: TypeAlias = list[float | None]


@dataclass(frozen=True)
class Timed:
    """`renew` gives its inputs new addresses; `time_slice(calls, salt)` times so many calls and accounts for them."""

    renew: Callable[[], object]
    time_slice: Callable[[int, int], dict[str, Any]]

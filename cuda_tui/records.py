"""The base of every record that is stored or sent: frozen, keyword-only, strict, and safe as JSON.

JSON has no NaN or infinity and no lone surrogates, so a float that may be non-finite has type `Real` (a number or
one of three words), and text that is not valid Unicode is escaped when it is written.
"""

import math
from typing import Any, Literal, TypeAlias, dataclass_transform

import msgspec

Real: TypeAlias = float | Literal["nan", "inf", "-inf"]
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _RecordMeta(msgspec.StructMeta):
    """msgspec does not inherit `kw_only`; every record wants it."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> type:
        config.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **config)


class Record(msgspec.Struct, metaclass=_RecordMeta, frozen=True, omit_defaults=True):
    """A value: compared by content, never changed in place."""


def real(value: float) -> Real:
    """A float as JSON can hold it."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def as_float(value: Real) -> float:
    """The float that `real` stored."""
    return float(value)


def encode(record: Any) -> bytes:
    """One line of JSON, without a line break. Lone surrogates are written as their escapes."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(record)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in value]
    return value

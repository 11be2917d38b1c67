"""Checks a call's arguments against its tool's schema: the small part of JSON Schema that our tools use."""

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def problems_of(value: Any, schema: dict[str, Any], *, where: str = "arguments") -> list[str]:
    """What is wrong with `value`, in words; empty where it fits. Unknown keys are wrong: nothing is guessed."""
    kind = schema.get("type")
    if isinstance(kind, str) and not _is(value, kind):
        return [f"{where}: expected {kind}, got {type(value).__name__}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is not one of {', '.join(map(repr, schema['enum']))}"]
    if isinstance(value, dict):
        return _object_problems(value, schema, where)
    if isinstance(value, (list, tuple)) and "items" in schema:
        return [
            problem
            for index, item in enumerate(value)
            for problem in problems_of(item, schema["items"], where=f"{where}[{index}]")
        ]
    return _bound_problems(value, schema, where)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _object_problems(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    properties: dict[str, Any] = schema.get("properties", {})
    found = [f"{where}: {name!r} is missing" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        if name in properties:
            found += problems_of(item, properties[name], where=f"{where}.{name}")
        elif schema.get("additionalProperties", False) is False:
            found.append(f"{where}: there is no {name!r}; known are {', '.join(sorted(properties)) or 'none'}")
    return found


def _bound_problems(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return [f"{where}: {value} is below {schema['minimum']}"]
        if value > schema.get("maximum", value):
            return [f"{where}: {value} is above {schema['maximum']}"]
    return []

"""The check of a call's arguments."""

from typing import Any

import pytest

from cuda_tui.agent.schema import problems_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path"],
}


@pytest.mark.parametrize("value", [{"path": "x"}, {"path": "", "lines": 9, "kind": "b", "tags": ["t"]}])
def test_fitting_arguments_have_no_problem(value: Any) -> None:
    assert problems_of(value, SCHEMA) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "'path' is missing"),
        ({"path": None}, "arguments.path: expected string, got NoneType"),
        ({"path": "x", "lines": True}, "arguments.lines: expected integer, got bool"),
        ({"path": "x", "lines": 1.5}, "arguments.lines: expected integer, got float"),
        ({"path": "x", "lines": 0}, "0 is below 1"),
        ({"path": "x", "lines": 10}, "10 is above 9"),
        ({"path": "x", "kind": "c"}, "'c' is not one of 'a', 'b'"),
        ({"path": "x", "tags": ["t", 1]}, "arguments.tags[1]: expected string, got int"),
        ({"path": "x", "more": 1}, "there is no 'more'"),
        ([], "expected object, got list"),
    ],
)
def test_problem_is_named_with_its_place(value: Any, problem: str) -> None:
    (found,) = problems_of(value, SCHEMA)
    assert problem in found

"""What the tools share: schemas, results, and text cut to what a model should read."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from cuda_tui.agent.protocols import Proposal
from cuda_tui.messages import Effect, ToolResult, ToolSpec

CONTENT_LIMIT = 24_000  # characters of one result that the model reads


def schema(required: dict[str, Any] | None = None, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON schema of type object."""
    needed = required or {}
    return {
        "type": "object",
        "properties": {**needed, **(optional or {})},
        "required": list(needed),
        "additionalProperties": False,
    }


def text(description: str, **more: Any) -> dict[str, Any]:
    """A schema of type string."""
    return {"type": "string", "description": description, **more}


def integer(description: str, **more: Any) -> dict[str, Any]:
    """A schema of type integer."""
    return {"type": "integer", "description": description, **more}


@dataclass(frozen=True, kw_only=True)
class ReadOnly:
    """A tool that needs no approval. Subclasses give `spec` and `run`."""

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """Nothing to decide on."""
        return Proposal()


def spec(name: str, effect: Effect, description: str, parameters: dict[str, Any]) -> ToolSpec:
    """A tool's specification; the description's lines are joined."""
    return ToolSpec(name=name, description=" ".join(description.split()), parameters=parameters, effect=effect)


def failure(message: str) -> ToolResult:
    """A result that the model can mend."""
    return ToolResult(content=message, is_error=True)


def clipped(content: str, *, limit: int = CONTENT_LIMIT, whole: str = "") -> str:
    """The beginning and the end of a long text; `whole` says where all of it is."""
    if len(content) <= limit:
        return content
    left_out = len(content) - limit
    where = f"; {whole}" if whole else ""
    return f"{content[: limit // 2]}\n[... {left_out} characters left out{where} ...]\n{content[-limit // 2 :]}"


def visible(content: str) -> str:
    """The text with every control, escape and direction character shown as <U+XXXX>; line feeds and tabs stay."""
    return "".join(_shown(character) for character in content)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character
    return f"<U+{ord(character):04X}>"

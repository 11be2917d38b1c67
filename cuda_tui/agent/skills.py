"""Skills: folders with a SKILL.md (front matter with name and description, then the body)."""

from collections.abc import Iterable
from pathlib import Path

from cuda_tui.records import Record

LONGEST_DESCRIPTION = 1024  # characters, the open convention's limit


class Skill(Record):
    """One skill as the prompt lists it. `path` is its SKILL.md."""

    name: str
    description: str
    path: str


def find_skills(folders: Iterable[Path]) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """The skills in `folders`, sorted by name, and one sentence for each SKILL.md that is none.

    A later folder's skill replaces an earlier one of the same name, so that the person's own win.
    """
    skills: dict[str, Skill] = {}
    problems = []
    for folder in folders:
        for path in sorted(folder.glob("*/SKILL.md")):
            found = parse_skill(path)
            if isinstance(found, Skill):
                skills[found.name] = found
            else:
                problems.append(found)
    return tuple(skills[name] for name in sorted(skills)), tuple(problems)


def parse_skill(path: Path) -> Skill | str:
    """Read a SKILL.md's front matter; a sentence saying what is wrong where it has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return f"{path} cannot be read: {error}"
    if not lines or lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        return f"{path} does not begin with front matter between two lines of ---"
    fields = _fields(lines[1 : [line.strip() for line in lines].index("---", 1)])
    name, description = fields.get("name", ""), fields.get("description", "")
    if not name or not description:
        return f"{path} lacks {'a name' if not name else 'a description'}"
    return Skill(name=name, description=description[:LONGEST_DESCRIPTION], path=str(path))


def _fields(lines: list[str]) -> dict[str, str]:
    """`key: value` lines; an indented line continues the value above it. Quotes around a value are dropped."""
    fields: dict[str, str] = {}
    key = ""
    for line in lines:
        if line[:1].isspace() and key:
            fields[key] = f"{fields[key]} {line.strip()}".strip()
        elif ":" in line:
            key, _, value = line.partition(":")
            key = key.strip()
            fields[key] = value.strip().removeprefix(">").removeprefix("|").strip()
    return {key: _unquoted(value) for key, value in fields.items()}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value

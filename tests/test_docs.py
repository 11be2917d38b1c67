"""The documents name everything that the code has, so that neither can grow without the other."""

import re
from pathlib import Path

import msgspec

from cuda_tui.config import PROVIDERS, ProviderSettings, Settings
from cuda_tui.evaluation.report import Code
from cuda_tui.events import DURABLE
from cuda_tui.secrets import VARIABLES
from cuda_tui.session.log import LOG_FORMAT

DOCS = Path(__file__).parent.parent / "docs"
PACKAGE = Path(__file__).parent.parent / "cuda_tui"


def rows(document: str) -> dict[str, str]:
    """Table rows by their first cell, marks of code taken off."""
    cells = re.findall(r"^\| ([^|]+?) \| (.*) \|$", (DOCS / document).read_text(), re.MULTILINE)
    return {first.replace("`", ""): rest for first, rest in cells}


def test_every_code_has_a_row_with_what_was_found() -> None:
    table = rows("verdicts.md")
    assert {code.value for code in Code} <= table.keys()


def test_codes_that_are_called_reserved_are_exactly_those_that_nothing_gives() -> None:
    files = (path for path in (PACKAGE / "evaluation").rglob("*.py") if path.name != "report.py")
    source = "\n".join(path.read_text() for path in sorted(files))
    table = rows("verdicts.md")
    for code in Code:
        is_given = f"Code.{code.value}" in source or f'"{code.value}"' in source
        is_reserved = table[code.value].startswith("reserved")
        assert is_given != is_reserved, f"{code.value} is {'' if is_given else 'not '}given: say so in docs/verdicts.md"


def test_every_flag_is_explained() -> None:
    source = "\n".join(path.read_text() for path in sorted((PACKAGE / "evaluation").glob("*.py")))
    flags = set(re.findall(r'Flag\(code="(\w+)"|return "([A-Z_]+)", |\("([A-Z_]+)", f"', source))
    text = (DOCS / "verdicts.md").read_text()
    names = {name for found in flags for name in found if name}
    assert {"FALLBACK", "CALL", "PATCH", "LIBRARY", "KERNEL_SHARE"} <= names
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def test_every_setting_and_provider_is_in_the_configuration() -> None:
    text = (DOCS / "configuration.md").read_text()
    assert {field.name for field in msgspec.structs.fields(Settings)} <= rows("configuration.md").keys()
    for name in (*PROVIDERS, *VARIABLES, *(field.name for field in msgspec.structs.fields(ProviderSettings))):
        assert f"`{name}`" in text, name


def test_every_durable_event_is_in_the_log_format() -> None:
    text = (DOCS / "sessions.md").read_text()
    for event in DURABLE:
        assert re.search(rf"\b{event.__struct_config__.tag}\b", text), event
    assert f"`log_format` is {LOG_FORMAT}" in text

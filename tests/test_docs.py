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


def test_a_code_that_is_called_reserved_is_raised_nowhere() -> None:
    source = "\n".join(path.read_text() for path in sorted((PACKAGE / "evaluation").rglob("*.py")))
    table = rows("verdicts.md")
    for code in Code:
        if table[code.value].startswith("reserved"):
            assert f"Code.{code.value}" not in source, f"{code.value} is given now: say so in docs/verdicts.md"


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

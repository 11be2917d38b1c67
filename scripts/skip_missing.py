"""A pytest plugin for machines that lack some packages: what cannot be imported for want of one is skipped and named.

PYTHONPATH=. python -m pytest -p scripts.skip_missing -m gpu tests
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = ("cuda_tui", "tests", "scripts")
MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
LEFT_OUT: dict[str, str] = {}  # folder or file to the package that it lacks


def missing_import(source: str) -> str | None:
    """The first package that the file imports at its top and that is not installed."""
    for node in ast.parse(source).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in (name.partition(".")[0] for name in names):
            if name and name not in OURS and importlib.util.find_spec(name) is None:
                return name
    return None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder whose conftest.py cannot be imported: its error would take all other folders with it."""
    conftest = collection_path / "conftest.py"
    lacking = missing_import(conftest.read_text(encoding="utf-8")) if conftest.is_file() else None
    if lacking is None:
        return None
    LEFT_OUT[collection_path.name] = lacking
    return True


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A module that lacks a package is skipped."""
    report: pytest.CollectReport = yield  # type: ignore[assignment]  # pluggy sends the report in
    found = MISSING.search(str(report.longrepr)) if report.failed else None
    if found is not None and not found[1].startswith(OURS):
        LEFT_OUT[collector.name] = found[1]
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: no package {found[1]} here")
    return report  # type: ignore[return-value]  # and takes it back as the result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out."""
    for place, package in sorted(LEFT_OUT.items()):
        terminalreporter.write_line(f"left out: {place} (no package {package} here)")

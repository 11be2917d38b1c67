"""GPU tests skip themselves, visibly, where there is no GPU."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a GPU as skipped where none is there."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return
    skip = pytest.mark.skip(reason="there is no GPU here")
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(skip)

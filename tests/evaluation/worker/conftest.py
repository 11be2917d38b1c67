"""Workers' code run in this process: what it changes here is put back."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cuda_tui.evaluation.worker import timing
from tests.evaluation.worker.judging import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeBench]:
    """make_bench(source of model.py) -> Bench."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(torch, "compile", torch.compile)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.chdir(tmp_path)

    def make(source: str, **fields: Any) -> Bench:
        return Bench(tmp_path, source, **fields)

    yield make
    timing.poison_new_memory(False)
    for name in ("model", "model_new"):
        sys.modules.pop(name, None)

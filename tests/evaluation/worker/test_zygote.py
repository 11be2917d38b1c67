"""The warm parent never outlives its controller, not even one that is killed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.evaluation.workers import WORKER

pytestmark = pytest.mark.slow


def test_controller_that_goes_during_the_import_of_torch_ends_the_zygote_at_once(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(120)\n")
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, theirs:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), str(theirs.fileno())],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            pass_fds=[theirs.fileno()],
        )
    try:
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()

"""Whole headless runs as processes: what is printed, how they end, and what a signal leaves behind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cuda_tui.cli.wiring import auto_refusal
from cuda_tui.events import Outcome, SessionEnded, SessionResumed, ToolFinished
from cuda_tui.process import descendants
from cuda_tui.sandbox.rung import detect
from cuda_tui.session.log import INTERRUPTED, read_log

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(auto_refusal(detect())), reason="no sandbox on this machine: auto mode is refused"),
]
MODEL = """
import os, torch
print(dict(os.environ))
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + x
def get_inputs():
    return [torch.randn(4, 8)]
"""
SLEEP = "61.5"  # seconds; also how the tests recognise their own sleepers


@dataclass
class Run:
    """A folder with a model, and the program started in it."""

    folder: Path
    environ: dict[str, str]

    def script(self, *replies: dict[str, Any]) -> str:
        path = self.folder / "script.json"
        path.write_text(json.dumps(replies))
        return f"scripted:{path}"

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "cuda_tui.cli.main", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def log(self) -> Path:
        (path,) = (self.folder / "state" / "cuda-tui" / "sessions").glob("*.jsonl")
        return path

    def events(self) -> list[Any]:
        return [entry.event for entry in read_log(self.log).entries]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "model.py").write_text(MODEL)
    folders = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    return Run(tmp_path, {**os.environ, **folders, "PROVIDER_API_KEY": "canary-123", "CUDA_TUI_DEVICE": "cpu"})


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"text": f"Now {name}.", "tool_calls": [{"id": "", "name": name, "arguments": arguments}]}


def optimize(model: str, *more: str) -> tuple[str, ...]:
    return ("optimize", "model.py", "--headless", "--approve", "auto", "--model", model, *more)


def workers_of(pid: int) -> list[int]:
    """The program's evaluation workers."""
    found = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if b"evaluation/worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def sleepers() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"sleep\0{SLEEP}".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_run_prints_lines_for_a_person_and_leaks_no_key(run: Run) -> None:
    model = run.script(
        call("write", path="kernels/a.txt", content="one\n"),
        call("shell", command="env; echo canary-123 | rev"),
        call("finish", summary="Nothing gained."),
    )
    done = run.finish(*optimize(model))
    assert done.returncode == 0, done.stderr
    assert "> write kernels/a.txt" in done.stdout
    assert "done: Nothing gained." in done.stdout
    assert "no candidate measured faster" in done.stdout
    assert str(run.log) in done.stdout
    for path in [run.log, *(run.folder / "data").rglob("*"), *(run.folder / "state").rglob("*")]:
        if path.is_file():
            assert b"canary-123" not in path.read_bytes(), path


def test_json_is_one_object_a_line_with_transient_events_marked(run: Run) -> None:
    done = run.finish(*optimize(run.script(call("list"), call("finish", summary="ok")), "--json"))
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    durable = [item for item in objects if not item.get("transient")]
    assert [item["seq"] for item in durable] == list(range(len(durable)))
    assert durable[-1]["event"]["kind"] == "session_ended"
    assert {item["event"]["kind"] for item in objects if item.get("transient")} >= {"text_streamed", "call_streamed"}


def test_budget_that_runs_out_ends_with_three(run: Run) -> None:
    done = run.finish(*optimize(run.script(*[call("list")] * 3), "--turns", "2"))
    assert done.returncode == 3
    assert "budget" in done.stdout


def test_provider_that_fails_for_good_ends_with_two(run: Run) -> None:
    assert run.finish(*optimize(run.script({"error": "401: bad key"}))).returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_closes_the_open_call_and_leaves_no_process(run: Run, number: signal.Signals) -> None:
    process = run.start(*optimize(run.script(call("shell", command=f"setsid sleep {SLEEP} & sleep {SLEEP}"))))
    wait_for(sleepers, process)
    begun = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert time.monotonic() - begun < 5
    assert process.returncode == 3
    assert sleepers() == []
    events = run.events()
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.result.is_error
    assert isinstance(events[-1], SessionEnded)
    assert events[-1].outcome is Outcome.CANCELLED


def test_second_interrupt_while_opening_leaves_at_once_with_its_workers(run: Run) -> None:
    process = run.start(*optimize(run.script(call("list"))))
    wait_for(lambda: workers_of(process.pid), process)
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals at the same moment would be one
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    process.communicate(timeout=20)
    assert time.monotonic() - begun < 2
    assert process.returncode == 3
    deadline = time.monotonic() + 3  # a killed process may take a moment to vanish
    while (left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def test_killed_run_resumes_with_its_open_call_interrupted(run: Run) -> None:
    process = run.start(*optimize(run.script(call("shell", command=f"sleep {SLEEP}"))))
    wait_for(sleepers, process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 3
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sleepers() == []
    model = run.script(call("list"), call("finish", summary="recovered"))
    done = run.finish("resume", "--headless", "--approve", "auto", "--model", model)
    assert done.returncode == 0, done.stderr
    events = run.events()
    assert any(isinstance(event, SessionResumed) for event in events)
    assert next(event.result.content for event in events if isinstance(event, ToolFinished)) == INTERRUPTED
    assert "done: recovered" in done.stdout


def test_reference_that_fails_is_one_message_that_names_the_persons_file_and_leaves_nothing(run: Run) -> None:
    (run.folder / "net.py").write_text(MODEL.replace("torch.tanh(x) + x", "1 / 0"))
    arguments = [part.replace("model.py", "net.py") for part in optimize(run.script(call("finish", summary="x")))]
    done = run.finish(*arguments)
    assert done.returncode == 1
    assert f"net.py: ZeroDivisionError: division by zero ({run.folder / 'net.py'}:6)" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((run.folder / "state").rglob("*.jsonl"))
    assert not list((run.folder / "data" / "cuda-tui" / "workspaces").iterdir())


def test_machine_without_compiler_ends_with_two_before_any_session(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("git", "bwrap", "sh", "true"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    run.environ["PATH"] = str(tmp_path / "bin")
    done = run.finish(*optimize("autopilot"))
    assert done.returncode == 2
    assert "no C++ compiler" in done.stderr
    assert not (run.folder / "data").exists()


def test_workspace_whose_protected_file_changed_is_kept_and_refused(run: Run) -> None:
    (run.folder / "model.py").write_text(MODEL)
    script = run.script(call("finish", summary="x"))
    assert run.finish(*optimize(script)).returncode == 0
    (workspace,) = (run.folder / "data" / "cuda-tui" / "workspaces").iterdir()
    (workspace / "model.py").write_text(MODEL.replace("torch.tanh(x) + x", "1 / 0"))
    arguments = [part.replace("model.py", str(workspace)) for part in optimize(script)]
    done = run.finish(*arguments)
    assert done.returncode == 1
    assert "model.py was changed" in done.stderr
    assert (workspace / "task.toml").is_file()


PYNVML = """
class Memory: used, total = 1 << 30, 140 << 30
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(gpu): return "NVIDIA H200"
def nvmlDeviceGetUUID(gpu): return "GPU-1"
def nvmlDeviceGetCudaComputeCapability(gpu): return 9, 0
def nvmlDeviceGetMemoryInfo(gpu): return Memory
def nvmlSystemGetCudaDriverVersion(): return 13000
def __getattr__(name):
    def refuse(*_): raise RuntimeError("Not Supported")
    return refuse
"""


@pytest.fixture
def with_gpu(run: Run) -> Run:
    """A machine whose driver shows one GPU; its torch has no CUDA."""
    (run.folder / "lib").mkdir()
    (run.folder / "lib" / "pynvml.py").write_text(PYNVML)
    return Run(run.folder, {**run.environ, "PYTHONPATH": str(run.folder / "lib"), "CUDA_TUI_DEVICE": ""})


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_gpu_that_cannot_be_worked_on_is_told_before_the_cpu_is_taken(with_gpu: Run) -> None:
    ended = with_gpu.finish(*optimize(with_gpu.script(call("finish", summary="enough"))))
    assert "Model on cpu" in ended.stdout
    assert "! there is NVIDIA H200 here, and torch " in ended.stdout
    assert "is built without CUDA; the CPU is worked on" in ended.stdout


def test_gpu_that_is_not_there_is_refused_with_those_that_are(with_gpu: Run) -> None:
    ended = with_gpu.finish(*optimize("autopilot", "--device", "cuda:1"))
    assert ended.returncode == 1
    assert "there is no GPU 1; this machine has 1: 0 (NVIDIA H200)" in ended.stderr
    assert "--device" in ended.stderr

"""A real local server that speaks the vendors' wire formats."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuda_tui.agent.protocols import Provider
from cuda_tui.providers.factory import make_provider
from cuda_tui.providers.wire import Endpoint

WIRES = ("messages", "responses", "chat")


@dataclass(frozen=True)
class Server:
    """A running `llmock serve`."""

    url: str

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body or {}).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def script(self, *behaviors: dict[str, Any]) -> None:
        self.post("/_llmock/scenario", {"behaviors": list(behaviors)})

    def provider(self, wire: Any) -> Provider:
        base = f"{self.url}/anthropic" if wire == "messages" else f"{self.url}/v1"
        model = "claude-test" if wire == "messages" else "test"
        return make_provider(
            Endpoint(provider="local", model=model, key="k" * 12, key_name="LOCAL_KEY", base_url=base), wire=wire
        )


@pytest.fixture(scope="session")
def llmock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`llmock serve` as a process of its own on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("llmock") / "log"
    command = [str(Path(sys.executable).with_name("llmock")), "serve", "--port", str(port), "--host", "127.0.0.1"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            server = Server(f"http://127.0.0.1:{port}")
            _wait_until_up(server, process, log)
            yield server
        finally:
            process.kill()


@pytest.fixture
def server(llmock_server: Server) -> Server:
    """The server with nothing scripted and nothing remembered."""
    llmock_server.post("/_llmock/reset")
    return llmock_server


def _wait_until_up(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.get("/_llmock/scenario")
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"llmock did not start: {log.read_text()}") from None
            time.sleep(0.05)

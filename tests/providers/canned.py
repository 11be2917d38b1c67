"""A local HTTP server that answers with prepared bytes, for what no polite server sends."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Canned:
    """Prepared answers in order, and the bodies of the requests that got them."""

    def __init__(self, answers: list[tuple[int, str]]) -> None:
        self.answers = answers
        self.bodies: list[dict[str, Any]] = []
        self.url = ""


def chat(*chunks: dict[str, Any]) -> tuple[int, str]:
    """A stream of chat completion chunks."""
    whole = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk} for chunk in chunks]
    return 200, "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in whole) + "data: [DONE]\n\n"


def events(*items: dict[str, Any]) -> tuple[int, str]:
    """A stream of named events (Messages, Responses)."""
    return 200, "".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n" for item in items)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chat chunk."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def refusal(message: str) -> tuple[int, str]:
    """A 400 in the vendors' form."""
    return 400, json.dumps({"error": {"message": message, "type": "invalid_request_error"}, "type": "error"})


@contextmanager
def serving(*answers: tuple[int, str]) -> Iterator[Canned]:
    """Serve the answers on a free port."""
    canned = Canned(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            canned.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, text = canned.answers.pop(0)
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if status == 200 else "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        canned.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield canned
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

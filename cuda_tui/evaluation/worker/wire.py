"""JSON lines over a private socket between the controller and a worker. Nothing is ever unpickled."""

import json
import socket
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a conversation: requests come in, answers go out, in order."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lines = connection.makefile("rb")

    def receive(self) -> "Message | None":
        """The next message, or None when the other end is gone."""
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message

    def send(self, message: Message) -> None:
        """Send one message; non-finite floats must have been made words before."""
        self.connection.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

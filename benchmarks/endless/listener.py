"""The HTTP/1.1 front of the server."""

from __future__ import annotations

import asyncio
import json
from typing import cast

from benchmarks.endless.operations import Account
from benchmarks.endless.queue import Receive

#: The path of a benchmark's own calls.
CONTROL_PATH = b"/bench"
_LENGTH = b"\r\ncontent-length:"
_TARGET = b"\r\nx-amz-target:"


class Connection(asyncio.Protocol):
    """One connection that is kept alive. Its client waits for each answer before the next call."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._read = b""
        self._receive: Receive | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Let no more messages go to a client that has left."""
        if self._receive is not None:
            self._receive.is_gone = True

    def data_received(self, data: bytes) -> None:
        """Answer the call if it is complete."""
        self._read += data
        head, end, rest = self._read.partition(b"\r\n\r\n")
        if not end:
            return
        lowered = head.lower()
        length = int(_header(lowered, _LENGTH, head) or 0)
        if len(rest) < length:
            return
        self._read = rest[length:]
        body = json.loads(rest[:length] or b"{}")
        if head.split(b" ", 2)[1] == CONTROL_PATH:
            self._send(200, json.dumps(self._account.change(body)), 0.0)
            return
        operation = _header(lowered, _TARGET, head).rpartition(b".")[2].decode()
        self._receive = self._account.answer(operation, body, self._send)

    def _send(self, status: int, text: str, delay: float) -> None:
        content = text.encode()
        reason = b"OK" if status == 200 else b"Bad Request"
        answer = (
            b"HTTP/1.1 %d %b\r\nContent-Type: application/x-amz-json-1.0\r\n"
            b"x-amzn-RequestId: 00000000-0000-4000-8000-000000000000\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, reason, len(content), content)
        )
        if delay:
            asyncio.get_running_loop().call_later(delay, self._transport.write, answer)
        else:
            self._transport.write(answer)


def _header(lowered: bytes, name: bytes, head: bytes) -> bytes:
    """Return a header's value; empty if it is missing."""
    start = lowered.find(name)
    if start < 0:
        return b""
    return head[start + len(name) :].split(b"\r\n", 1)[0].strip()

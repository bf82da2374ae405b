"""Messages on the link between a worker and its keeper: their format, and an end of the socket.

Each message is a line of JSON, because people can read it, `json` writes a message in a few
microseconds, and corrupt bytes cannot make the reader run code, as they could with pickle.
"""

from __future__ import annotations

import _socket
import _thread
import json
import math
from collections.abc import Sequence
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: A message: its kind and its fields, all of them plain values.
Message = Sequence[Any]

#: The longest line that is read, in bytes. A message that is sent again has a body of up to 1 MiB.
MAX_LINE = 64 << 20
#: Bytes that either end reads or writes at once.
CHUNK = 1 << 18
#: How long either end waits for more messages after the first, in seconds. To wake up for each
#: message would take CPU time from the worker's tasks.
GATHER_SECONDS = 0.005
#: When so many bytes wait for the worker, log lines and statistics are left out. A task that lets
#: no other thread run may keep the worker from reading for hours.
MOST_WAITING = 4 << 20
#: Kinds of messages that may be left out.
_SPARE = frozenset({"log", "stats"})

_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class BrokenLink(SqsHeartbeatError):
    """The link delivered something unreadable: the other end is broken or of another version."""


def write(message: Message) -> bytes:
    """Return a message as a line.

    Raises:
        TypeError: A field is not a plain value.
    """
    return _write(message).encode() + b"\n"


class LineReader:
    """Puts lines together from the pieces that arrive."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, data: bytes) -> list[list[Any]]:
        """Add bytes. Return the messages that they complete, in order.

        Raises:
            BrokenLink: The bytes are not messages.
        """
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._begun) + lines[0]
            self._begun.clear()
        self._begun += rest
        if len(self._begun) > MAX_LINE:
            raise BrokenLink(f"the link has a line of more than {MAX_LINE} bytes")
        return _read(lines)


class Wire:
    """One end of the link. No end waits for the other to read. One thread reads, any may write.

    It uses modules that neither gevent nor eventlet replaces. So a write returns at once, and no
    other greenlet runs during it while its caller holds a lock.

    Args:
        descriptor: The descriptor of a connected stream socket. The wire closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._lock = _thread.RLock()
        self._reader = LineReader()
        self._unsent = bytearray()
        self._left_out = 0
        self.is_broken = False

    def fileno(self) -> int:
        """Return the descriptor; -1 after it was closed."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """How many bytes still wait to be sent."""
        return len(self._unsent)

    def post(self, message: Message) -> None:
        """Have a message sent by the next `flush`.

        Raises:
            TypeError: A field is not a plain value. The message is not sent.
        """
        line = write(message)
        with self._lock:
            if message[0] in _SPARE and self.waiting >= MOST_WAITING:
                self._left_out += message[0] == "log"
            elif not self.is_broken:
                self._unsent += line

    def flush(self) -> bool:
        """Send as much as the socket takes now. Return whether that was all."""
        with self._lock:
            try:
                while self._unsent and not self.is_broken:
                    del self._unsent[: self._socket.send(self._unsent[:CHUNK])]
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # The other end is gone. A new keeper gets everything it needs when it starts.
                self.is_broken = True
            return not self.is_broken

    def send(self, message: Message) -> None:
        """Send a message, now or by a later `flush`."""
        self.post(message)
        self.flush()

    def take_left_out(self) -> int:
        """Return how many log lines were left out since the last report.

        While messages wait for the other end, return 0 and keep counting.
        """
        with self._lock:
            if self.waiting:
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out

    def receive(self, most: float = math.inf) -> list[list[Any]] | None:
        """Return the messages that have arrived; None if the other end is gone.

        Args:
            most: How many bytes to read about. More may be left.

        Raises:
            BrokenLink: The data that arrived cannot be read.
        """
        messages: list[list[Any]] = []
        size = 0
        while size < most:
            try:
                data = self._socket.recv(CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""
            if not data:
                self.is_broken = True
                # Messages that came before the end still count.
                return messages or None
            size += len(data)
            messages += self._reader.feed(data)
        return messages

    def close(self) -> None:
        """Close this end. Messages that were not sent are lost."""
        self._socket.close()
        self.is_broken = True


def _read(lines: Sequence[bytes]) -> list[list[Any]]:
    try:
        messages: list[list[Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError) as error:
        raise BrokenLink(f"the link has a line that is not JSON: {error}") from None
    if len(messages) != len(lines) or not all(
        isinstance(each, list) and each and isinstance(each[0], str) for each in messages
    ):
        raise BrokenLink("the link has a line that is not a message")
    return messages

"""Two ends of a link, on a real socket pair."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from celery_sqs_heartbeat.link.frames import LineReader, Message, Wire, write

#: In bytes: a few dozen messages fill it.
SMALL_BUFFER = 4_096


def pack(messages: Sequence[Message]) -> bytes:
    """Return messages as lines."""
    return b"".join(map(write, messages))


def in_child(check: Callable[[], bool]) -> bool:
    """Return whether a check holds in a forked child."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Far:
    """The other end. It reads only when the test calls `read`."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.setblocking(False)
        self._reader = LineReader()

    def read(self, most: int = 1 << 20) -> list[list[Any]]:
        """Read at most `most` bytes. Return the messages that they complete."""
        try:
            return self._reader.feed(self.connection.recv(most))
        except BlockingIOError:
            return []

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def close(self) -> None:
        self.connection.close()


class Pair:
    """A wire and its other end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        self.wire = Wire(ours.detach())
        self.far = Far(theirs)

    def fill(self) -> list[Message]:
        """Write until the socket takes no more. Return the messages written."""
        written: list[Message] = []
        while not self.wire.waiting:
            written.append(("fill", len(written), "x" * 100))
            self.wire.post(written[-1])
            self.wire.flush()
        return written

    def read_all(self) -> list[list[Any]]:
        """Have the other end read until nothing more arrives."""
        read: list[list[Any]] = []
        while (more := self.far.read()) or self.wire.waiting:
            read += more
            self.wire.flush()
        return read

    def close(self) -> None:
        self.wire.close()
        self.far.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()

"""The worker's end of a link, on which it receives its keeper's messages."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from celery_sqs_heartbeat.link.frames import BrokenLink, FrameReader
from celery_sqs_heartbeat.link.wire import CHUNK


class Listener:
    """Waits for a keeper's messages. Its thread may be a greenlet, which lets others run meanwhile.

    Args:
        connection: A socket of Python's `socket` module, which gevent and eventlet replace. The
            listener closes it.
        seconds: How long `rest` waits for more, unless `listen` has set another timeout.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        connection.settimeout(seconds)
        self._socket = connection
        self._reader = FrameReader()

    def listen(self, seconds: float) -> list[list[Any]] | None:
        """Return the messages that arrive within `seconds`; None when the other end is closed.

        Raises:
            BrokenLink: The data that arrived cannot be read.
        """
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(CHUNK)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        return self._reader.feed(data) if data else None

    def rest(self) -> Iterator[list[Any]]:
        """Yield the messages that a keeper sent before it exited."""
        with contextlib.suppress(OSError, BrokenLink):
            while data := self._socket.recv(CHUNK):
                yield from self._reader.feed(data)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

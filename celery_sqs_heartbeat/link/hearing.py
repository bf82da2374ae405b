"""The worker's end of a link, where it hears its keeper."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from celery_sqs_heartbeat.link.frames import BrokenLink, FrameReader
from celery_sqs_heartbeat.link.wire import CHUNK


class Listener:
    """Waits for what a keeper says. Its thread may be a greenlet, which lets others run meanwhile.

    Args:
        connection: Of Python's `socket`, which gevent and eventlet replace: it belongs to this.
        seconds: How long `rest` waits for more, if `listen` did not say otherwise.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        connection.settimeout(seconds)
        self._socket = connection
        self._reader = FrameReader()

    def listen(self, seconds: float) -> list[list[Any]] | None:
        """Return the messages that come within so many seconds, maybe none; None at the end.

        Raises:
            BrokenLink: What has come can't be read.
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
        """Yield what a keeper that is gone said before it ended."""
        with contextlib.suppress(OSError, BrokenLink):
            while data := self._socket.recv(CHUNK):
                yield from self._reader.feed(data)

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()

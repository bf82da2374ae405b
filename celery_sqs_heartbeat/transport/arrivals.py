"""Tells a consumer's thread that messages have arrived for it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent

#: Bytes read at once: each is one call of `set`.
_CHUNK = 4_096


class Arrivals:
    """Wakes an event loop, or a thread that waits without one. Any thread may call `set`.

    `Hub.call_soon` would not do: before kombu 5.7 it does not wake a loop that waits.
    """

    def __init__(self) -> None:
        self._event = AutoResetEvent()
        self._hub: Any = None
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def set(self) -> None:
        """Wake the thread that waits, now or when it waits next."""
        self._event.set()
        if (sockets := self._sockets) is not None:
            # A full socket wakes it, too. A closed one has no thread to wake.
            with contextlib.suppress(OSError):
                sockets[1].send(b"\0")

    def wait(self, seconds: float) -> None:
        """Wait for a call of `set`, at most for so long."""
        self._event.wait(seconds)

    def listen(self, hub: Any, call: Callable[[], object]) -> None:
        """Have an event loop call a function after each `set`, unless it does so already."""
        if self._sockets is None:
            self._sockets = socket.socketpair()
            for each in self._sockets:
                each.setblocking(False)
        self._hub = hub
        if self._sockets[0].fileno() not in hub.readers:
            hub.add_reader(self._sockets[0], self._read, call)
            self.set()

    def close(self) -> None:
        """Wake no event loop any more."""
        sockets, self._sockets = self._sockets, None
        for each in sockets or ():
            if each.fileno() in self._hub.readers:
                self._hub.remove_reader(each)
            each.close()

    def _read(self, call: Callable[[], object]) -> None:
        if self._sockets is not None:
            with contextlib.suppress(OSError):
                self._sockets[0].recv(_CHUNK)
        call()

"""Tells a consumer's thread that messages have arrived for it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.watching import wait_readable

#: Bytes read at once: each is one call of `set`.
_CHUNK = 4_096


class Arrivals:
    """Wakes an event loop, or a thread that waits without one.

    It wakes when the keeper hands messages over, and by calls of `set`, from any thread.
    `Hub.call_soon` would not do: before kombu 5.7 it does not wake a loop that waits.
    """

    def __init__(self, keeper: LinkedKeeper) -> None:
        self._keeper = keeper
        self._hub: Any = None
        self._is_awake = False
        self._sockets = socket.socketpair()
        for each in self._sockets:
            each.setblocking(False)

    def set(self) -> None:
        """Wake the thread that waits, now or when it waits next."""
        if not self._is_awake:
            # A full socket wakes it, too. A closed one has no thread to wake.
            with contextlib.suppress(OSError):
                self._sockets[1].send(b"\0")

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Do not wake this thread in the block, because it looks for messages after it."""
        self._is_awake = True
        try:
            yield
        finally:
            self._is_awake = False

    def wait(self, seconds: float) -> None:
        """Wait for messages or a call of `set`, at most for so long."""
        descriptors = (self._sockets[0].fileno(), self._keeper.fileno())
        # That of a closed socket is -1.
        wait_readable([each for each in descriptors if each >= 0], seconds)
        self._read()

    def listen(self, hub: Any, call: Callable[[], object]) -> None:
        """Have an event loop call a function, unless it does so already."""
        self._hub = hub
        if self._sockets[0].fileno() not in hub.readers:
            hub.add_reader(self._sockets[0], self._read_and, call)
            hub.add_reader(self._keeper.fileno(), call)
            self.set()

    def close(self) -> None:
        """Wake no thread any more."""
        if self._hub is not None and self._sockets[0].fileno() in self._hub.readers:
            self._hub.remove_reader(self._sockets[0])
        for each in self._sockets:
            each.close()

    def _read_and(self, call: Callable[[], object]) -> None:
        self._read()
        call()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            self._sockets[0].recv(_CHUNK)

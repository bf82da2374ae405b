"""Hands work from one thread of the system to the greenlets of another."""

from __future__ import annotations

import _thread
import os
import socket
from collections import deque
from collections.abc import Callable

from celery_sqs_heartbeat.common import native


class Inbox:
    """Jobs for the greenlets of the thread that serves it, put in by any thread.

    A cooperative lock or queue would not do: those of eventlet break when two threads meet
    at one, and whoever waits at gevent's may be passed over for long.
    """

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = native.RLock()
        self._bell: socket.socket | None = None
        self._is_rung = False
        self._is_open = True
        self._unfinished = 0

    def put(self, job: Callable[[], None]) -> None:
        """Have a job begun soon, on a greenlet of its own, in order."""
        self._jobs.append(job)
        self._ring()

    def close(self) -> None:
        """Let `serve` end once every job is done."""
        self._is_open = False
        self._ring()

    def serve(self) -> None:
        """Do the jobs until it is closed. Waits as a greenlet does."""
        # They belong to the hub of the thread that makes them.
        listening, bell = socket.socketpair()
        with listening, bell:
            self._bell = bell
            while self._begin_jobs():
                listening.recv(64)
            with self._lock:
                self._bell = None

    def _begin_jobs(self) -> bool:
        """Begin what has come in; return whether there is anything to wait for."""
        self._is_rung = False
        while self._jobs:
            self._unfinished += 1
            # A greenlet, where `_thread` is replaced.
            _thread.start_new_thread(self._do, (self._jobs.popleft(),))
        return self._is_open or self._unfinished > 0

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            self._unfinished -= 1
            if not self._is_open:
                self._ring()

    def _ring(self) -> None:
        with self._lock:
            # Not rung twice, so that writing never waits.
            if self._bell is not None and not self._is_rung:
                self._is_rung = True
                os.write(self._bell.fileno(), b"!")

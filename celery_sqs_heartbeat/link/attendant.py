"""Starts a worker's keeper, listens to it, and replaces it when it dies or hangs."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.link.busy import is_busy
from celery_sqs_heartbeat.link.child import Child, KeeperProcess
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.link.hearing import Listener
from celery_sqs_heartbeat.link.hello import Hello
from celery_sqs_heartbeat.link.liveness import LOOK_SECONDS, LivenessMonitor
from celery_sqs_heartbeat.link.logs import emit, wanted_level
from celery_sqs_heartbeat.link.messages import read_event
from celery_sqs_heartbeat.link.restart_backoff import RestartBackoff
from celery_sqs_heartbeat.link.wire import GATHER_SECONDS, Wire

logger = logging.getLogger(__name__)

#: How often more is sent to a keeper that has not taken all yet, in seconds: a new one gets
#: thousands of leases, and a socket holds a few hundred.
_BACKLOG_SECONDS = 0.01
#: How much longer than its flush a keeper may take to end, in seconds: for its journal.
_END_SECONDS = 8.0


class Attendant:
    """Looks after the process of a worker's keeper.

    Its thread may be a greenlet of the tasks' hub: what it does must wait for no extension.

    Args:
        keeper: What the worker holds.
        hello: What each process is to know first; its log level is that of the moment.
        table: The table of leases, and the descriptor by which the process finds it.
        on_event: Is given the keeper's events, on the attendant's thread.
        on_late: Is called on that thread with the seconds by which the keeper was late.
        every_second: Is called on that thread, about once a second.
        start: Starts the process.
    """

    def __init__(
        self,
        keeper: LinkedKeeper,
        *,
        hello: Hello,
        table: Table,
        descriptor: int,
        on_event: Callable[[Event], None],
        on_late: Callable[[float], None] = lambda seconds: None,
        every_second: Callable[[], object] = lambda: None,
        start: Callable[[int, int], Child] = KeeperProcess,
        clock: Callable[[], float] = clocks.now,
    ) -> None:
        self._keeper = keeper
        self._hello = hello
        self._table = table
        self._descriptor = descriptor
        self._on_event = on_event
        self._on_late = on_late
        self._every_second = every_second
        self._called_at = 0.0
        self._log_level = 0
        self._start = start
        self._clock = clock
        self._liveness = LivenessMonitor(table, clock, self._is_busy)
        self._child: Child | None = None
        self._listener: Listener | None = None
        self._link_has_ended = False
        self._restarts = RestartBackoff()
        self._born_at = self._retry_at = 0.0
        self._is_stopping = False
        self._is_over = threading.Event()
        self._pid = os.getpid()
        self.stats: dict[str, Any] = {}
        _all.add(self)

    @property
    def pid(self) -> int | None:
        """The keeper's process; None while there is none."""
        return self._child.pid if self._child is not None else None

    def begin(self) -> None:
        """Start the keeper's process. It gets ready while the worker does."""
        self._replace()

    def start(self) -> None:
        """Start the thread that listens to the keeper.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        threading.Thread(target=self._live, name="sqs-heartbeat-link", daemon=True).start()

    def stop(self, timeout: float) -> None:
        """Have the keeper flush for so many seconds at the most, and end; wait for that."""
        if self._is_stopping or self._pid != os.getpid():
            return
        self._is_stopping = True
        self._keeper.order("stop", timeout)
        self._is_over.wait(timeout + _END_SECONDS)
        # Also where it is not: the thread must not replace what is killed here.
        self._is_over.set()
        if (child := self._child) is not None and not child.has_ended():
            logger.error("sqs-heartbeat: the keeper's process did not end in time: it is killed")
            child.kill()
        self._disconnect()

    def leave_to_parent(self) -> None:
        """Close what a forked child has inherited: the link must end with its worker."""
        self._keeper.leave_to_parent()
        self._close()

    def _live(self) -> None:
        while not self._is_over.is_set():
            try:
                self._listen()
                if self._liveness.is_due() or self._has_ended():
                    self._look()
            except Exception:
                logger.exception("sqs-heartbeat: looking after the keeper failed; it goes on")
                time.sleep(LOOK_SECONDS)
            if self._is_stopping and self._has_finished():
                self._drain()
                self._is_over.set()

    def _has_ended(self) -> bool:
        child = self._child
        return child is not None and child.has_ended()

    def _listen(self) -> None:
        if self._listener is None:
            time.sleep(LOOK_SECONDS)
            return
        has_sent_all = self._keeper.push()
        try:
            messages = self._listener.listen(LOOK_SECONDS if has_sent_all else _BACKLOG_SECONDS)
            if messages is None:
                # Its process is about to end, or has: `_look` finds out.
                self._link_has_ended = True
                self._keeper.detach()
                time.sleep(LOOK_SECONDS / 10)
            elif messages:
                self._take_all(messages)
                time.sleep(GATHER_SECONDS)
        except BrokenLink as error:
            logger.error("sqs-heartbeat: %s; the keeper is replaced", error)  # noqa: TRY400
            if self._child is not None:
                self._child.kill()

    def _take_all(self, messages: Iterable[list[Any]]) -> None:
        for message in messages:
            try:
                self._take(message)
            except BrokenLink:
                raise
            except Exception:
                # Those that came with it count all the same.
                logger.exception("sqs-heartbeat: a handler of what the keeper says failed")

    def _take(self, message: list[Any]) -> None:
        match message:
            case ["over", int(number), int(receives), bool(is_deleted)]:
                self._keeper.end(number, receives, is_deleted=is_deleted)
            case ["event", int(number), list(values)]:
                event = read_event(values)
                self._keeper.note_event(number, event)
                self._on_event(event)
            case ["late", float(seconds)]:
                self._on_late(seconds)
            case ["log", dict(line)]:
                emit(line)
            case ["stats", dict(stats)]:
                self.stats = stats
            case _:
                raise BrokenLink(f"the keeper said something unknown: {message[0]!r}")

    def _look(self) -> None:
        if self._is_over.is_set():
            # It ended while we listened.
            return
        if self._clock() - self._called_at >= 1.0:
            self._called_at = self._clock()
            self._report_level()
            self._every_second()
        child = self._child
        if child is not None and child.has_ended():
            if self._is_stopping and self._has_finished():
                return
            self._lose(f"ended ({child.describe_end()})")
        elif child is not None and not self._is_finishing() and self._liveness.is_gone():
            child.kill()
            self._lose("did nothing for a second, and was killed")
        is_missing = self._child is None and not self._is_over.is_set()
        if is_missing and self._clock() >= self._retry_at:
            self._replace()

    def _report_level(self) -> None:
        """Have the keeper write those lines that the worker's logging wants by now."""
        if (level := wanted_level()) != self._log_level:
            self._log_level = level
            self._keeper.say("level", level)

    def _is_busy(self) -> bool:
        return self._child is not None and is_busy(self._child.pid)

    def _has_finished(self) -> bool:
        """Return whether the keeper has ended as it should: one that has died left work behind."""
        child = self._child
        return child is not None and child.has_ended() and child.describe_end() == "exit status 0"

    def _is_finishing(self) -> bool:
        """Return whether the keeper has done its last work, and its process is about to end.

        That may take a busy machine seconds; `stop` does not wait for ever.
        """
        return self._is_stopping and self._link_has_ended

    def _lose(self, how: str) -> None:
        """Note that the keeper is no more; another follows, after a pause if it died young."""
        self._drain()
        self._disconnect()
        self._child = None
        now = self._clock()
        pause = self._restarts.note(now - self._born_at)
        self._retry_at = now + pause
        logger.error(
            "sqs-heartbeat: the keeper's process %s; another starts %s and goes on with %s",
            how,
            f"in {pause:g} s" if pause else "at once",
            counted(len(self._keeper), "lease"),
        )

    def _drain(self) -> None:
        """Take what the keeper still had to say."""
        if self._listener is not None:
            with contextlib.suppress(BrokenLink):
                self._take_all(self._listener.rest())

    def _replace(self) -> None:
        try:
            wire = self._connect()
        except OSError as error:
            self._retry_at = self._clock() + self._restarts.note_refusal()
            logger.error(  # noqa: TRY400
                "sqs-heartbeat: the keeper's process can't be started: %s; it is tried again, "
                "and nothing is consumed meanwhile",
                error,
            )
            return
        self._link_has_ended = False
        self._born_at = self._clock()
        self._log_level = wanted_level()
        greeting = [replace(self._hello, level=self._log_level).message()]
        if (last := self._liveness.last_tick) > 0:
            greeting.append(("gap", self._clock() - last, self._restarts.count))
        self._liveness.begin()
        self._keeper.attach(wire, greeting)

    def _connect(self) -> Wire:
        """Start the keeper's process with one end of a new link; return the other end.

        Raises:
            OSError: The system grants no process, or no descriptors.
        """
        with contextlib.ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            with theirs:
                # Before the process: nothing may fail once there is one.
                wire = Wire(os.dup(ours.fileno()))
                opened.callback(wire.close)
                self._child = self._start(theirs.fileno(), self._descriptor)
            self._listener = Listener(ours, LOOK_SECONDS)
            opened.pop_all()
        return wire

    def _disconnect(self) -> None:
        self._keeper.detach()
        self._close()

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


_all: WeakSet[Attendant] = WeakSet()


def _leave_all_to_parent() -> None:
    for attendant in tuple(_all):
        attendant.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)

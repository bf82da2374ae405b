"""Starts a worker's keeper, listens to it, and replaces it when it dies or hangs."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.escaping import counted
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.link.child import (
    LONG_LIFE,
    LOOK_SECONDS,
    Child,
    KeeperProcess,
    KeeperThread,
    LivenessMonitor,
    is_busy,
    is_unfit,
)
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import CHUNK, GATHER_SECONDS, BrokenLink, Wire
from celery_sqs_heartbeat.link.messages import Hello, read_event, wanted_level, write_line
from celery_sqs_heartbeat.link.watching import wait_readable

logger = logging.getLogger(__name__)

#: How long to wait before more is sent to a keeper that has not read everything yet, in seconds.
#: A new keeper gets thousands of leases, and a socket holds a few hundred.
_BACKLOG_SECONDS = 0.01
#: How long a keeper may take to read its last polls, in seconds: the longest poll (20 s; SQS API
#: reference, ReceiveMessage), and the time that its answer may take.
_LAST_POLL_SECONDS = 25.0
#: How long a keeper may take to exit after its flush, in seconds. It closes its journal then.
_END_SECONDS = 8.0
#: Pauses before another keeper starts, in seconds: none after the first that died early.
_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class NoKeeper(SqsHeartbeatError):
    """No process becomes the worker's keeper."""


@dataclass(frozen=True, slots=True, repr=False)
class _Life:
    """One process of the keeper, from its start to its end."""

    child: Child
    wire: Wire
    liveness: LivenessMonitor


@dataclass(eq=False, kw_only=True, repr=False)
class Attendant:
    """Starts, watches and replaces the process of a worker's keeper.

    A keeper is ready from its first tick. If none is ready for too long, the attendant gives up: a
    worker whose first keeper was never ready must not start. Any other must end, and a thread of
    the worker is its last keeper.

    The attendant's thread may be a greenlet in the hub that also runs the tasks. So no extension
    may depend on its work.

    Attributes:
        keeper: The worker's view of its keeper and of the messages it holds.
        hello: The first message to each process. The log level is set when it is sent.
        table: The table of leases.
        descriptors: The keeper's end of the deliveries, and the file descriptor by which it opens
            the table.
        on_event: Called with each event of the keeper, on the attendant's thread.
        every_second: Called on that thread, about once a second.
        give_up_after: How long to try without a keeper that is ready, in seconds.
        launch: Starts the process.
    """

    keeper: LinkedKeeper
    hello: Hello
    table: Table
    descriptors: tuple[int, int]
    on_event: Callable[[Event], None]
    every_second: Callable[[], object] = lambda: None
    give_up_after: float = math.inf
    launch: Callable[[int, int, int], Child] = KeeperProcess
    clock: Callable[[], float] = clocks.now

    def __post_init__(self) -> None:
        self._life: _Life | None = None
        self._keepers = 0
        # How many died early, or could not be started, in a row.
        self._young = 0
        self._last_end = "is still starting"
        # The last tick of the keepers that are gone, and since when no keeper is ready.
        self._last_tick = self._missing_since = 0.0
        # When the next look, the next report and the next start are due.
        self._look_at = self._report_at = self._retry_at = 0.0
        self._log_level = 0
        self._is_stopping = False
        self._is_over = threading.Event()
        self._pid = os.getpid()
        self.stats: dict[str, Any] = {}
        #: Why it has given up.
        self.error: NoKeeper | None = None
        #: Called on its thread if it gives up although a keeper was ready before.
        self.on_given_up: Callable[[NoKeeper], object] = lambda error: None
        _all.add(self.keeper)

    @property
    def is_ready(self) -> bool:
        """Whether the keeper has made its first tick."""
        return self.table.tick > 0

    @property
    def pid(self) -> int | None:
        """The process id of the keeper; None while no keeper runs."""
        return self._life.child.pid if self._life is not None else None

    def begin(self) -> None:
        """Start the keeper's process. It starts up while the worker does."""
        self._missing_since = self.clock()
        self._replace()

    def start(self) -> None:
        """Start the thread that listens to the keeper.

        Raises:
            RuntimeError: The system cannot start another thread.
        """
        threading.Thread(target=self._live, name="sqs-heartbeat-link", daemon=True).start()

    def stop(self, timeout: float) -> None:
        """Have the keeper read its last polls, flush for at most `timeout` seconds, and exit."""
        if self._is_stopping or self._pid != os.getpid():
            return
        self._is_stopping = True
        self.keeper.pull()  # What is on its way is released while its content is known.
        self.keeper.order("stop", timeout)
        # Without a first keeper there is nothing to flush.
        if self._has_been_ready() or self.error is None:
            self._is_over.wait(_LAST_POLL_SECONDS + timeout + _END_SECONDS)
        # Even if the wait timed out: the thread must not replace a keeper that is killed here.
        self._is_over.set()
        if (life := self._life) is not None and not life.child.has_ended():
            logger.error("sqs-heartbeat: the keeper's process did not exit in time; killing it")
            life.child.kill()
        self.keeper.detach()
        self.keeper.close_inlet()

    def _live(self) -> None:
        while not self._is_over.is_set():
            try:
                self._listen()
                self._look()
            except Exception:
                logger.exception("sqs-heartbeat: watching the keeper failed; trying again")
                time.sleep(LOOK_SECONDS)

    def _listen(self) -> None:
        life = self._life
        if life is None or life.wire.is_broken:
            # Its process has exited or is about to exit: `_look` finds out.
            time.sleep(LOOK_SECONDS / 10)
            return
        has_sent_all = self.keeper.push()
        # With gevent and eventlet, other greenlets run meanwhile.
        wait_readable([life.wire.fileno()], LOOK_SECONDS if has_sent_all else _BACKLOG_SECONDS)
        try:
            if messages := life.wire.receive(CHUNK):
                self._take_all(messages)
                time.sleep(GATHER_SECONDS)
        except BrokenLink as error:
            logger.error("sqs-heartbeat: %s; replacing the keeper", error)  # noqa: TRY400
            life.child.kill()

    def _take_all(self, messages: Iterable[list[Any]]) -> None:
        # A lease is handed over before anything else happens to it.
        self.keeper.pull()
        for message in messages:
            try:
                self._take(message)
            except BrokenLink:
                raise
            except Exception:
                # The other messages of this read still count.
                logger.exception("sqs-heartbeat: handling a message from the keeper failed")

    def _take(self, message: list[Any]) -> None:
        match message:
            case ["event", list(values)]:
                event = read_event(values)
                self.keeper.note_event(event)
                self.on_event(event)
            case ["log", dict(line)]:
                write_line(line)
            case ["stats", dict(stats)]:
                self.stats = stats
            case _ if not self.keeper.take(message):
                raise BrokenLink(f"the keeper sent an unknown message: {message[0]!r}")

    def _look(self) -> None:
        """Replace a keeper that has ended or hangs. Every second, report what it can't see."""
        life, now = self._life, self.clock()
        has_ended = life is not None and life.child.has_ended()
        if (now < self._look_at and not has_ended) or self._is_over.is_set():
            return
        self._look_at = now + LOOK_SECONDS
        self.keeper.pull()
        if now >= self._report_at:
            self._report_at = now + 1.0
            self._report_level()
            self.every_second()
        if life is not None and has_ended:
            self._note_end(life.child.describe_end())
        elif life is not None and (fault := self._fault(life)):
            life.child.kill()
            self._lose(f"{fault}, and was killed")
        if self._is_over.is_set():
            return
        is_missing = not self.is_ready and self.error is None
        if is_missing and now - self._missing_since > self.give_up_after:
            self._give_up(
                f"no keeper has become ready for {self.give_up_after:g} s "
                f"(sqs_heartbeat_keeper_timeout): the last one {self._last_end}"
            )
        if self._life is None and self.clock() >= self._retry_at:
            self._replace()

    def _note_end(self, how: str) -> None:
        if self._is_stopping and how == "exit status 0":
            # If it died, it left work behind.
            self._drain()
            self._is_over.set()
        elif self._is_first():
            self._give_up(f"the keeper's process ended ({how}) before it was ready")
        else:
            self._lose(f"ended ({how})")

    def _fault(self, life: _Life) -> str:
        """Return why the keeper must be replaced, or an empty string."""
        # It has done its last work, and its exit may take seconds on a busy machine. `stop` limits
        # the wait. And the thread that is the last keeper can't be replaced.
        if (self._is_stopping and life.wire.is_broken) or self.error is not None:
            return ""
        if life.liveness.is_gone():
            return "did nothing for a second"
        hanging = self.stats.get("health", {}).get("hanging", 0)
        is_old = is_unfit(hanging, self.clock() - life.liveness.began_at)
        return f"had {hanging} calls that hang" if is_old else ""

    def _has_been_ready(self) -> bool:
        return self.is_ready or self._last_tick > 0

    def _is_first(self) -> bool:
        """Return whether a worker starts that must have a keeper, and has had none yet."""
        return not self._has_been_ready() and self.give_up_after < math.inf

    def _give_up(self, why: str) -> None:
        self.error = NoKeeper(
            f"sqs-heartbeat: {why}; without a keeper the worker ends. Look for the reason on its "
            "standard error, and check that memory and processes are left, and that "
            f"sys.executable={sys.executable!r} is a Python that can import the worker's packages"
        )
        if self._life is not None:
            self._life.child.kill()
        self._forget()
        if self._has_been_ready():
            self.launch, self._retry_at = KeeperThread, 0.0
            self.on_given_up(self.error)
        else:
            self._retry_at = math.inf

    def _report_level(self) -> None:
        """Send the keeper the worker's log level if it has changed."""
        if (level := wanted_level()) != self._log_level:
            self._log_level = level
            self.keeper.say("level", level)

    def _lose(self, how: str) -> None:
        """Note that the keeper has died. Another follows, after a pause if it died early."""
        age = 0.0
        if self._life is not None and self.is_ready:
            self._missing_since = self.clock()
            age = self._missing_since - self._life.liveness.began_at
        self._last_end = how
        pause = self._pause_after(age)
        self._forget()
        logger.error(
            "sqs-heartbeat: the keeper's process %s; another starts %s and continues with %s",
            how,
            f"in {pause:g} s" if pause else "at once",
            counted(len(self.keeper), "lease"),
        )

    def _pause_after(self, age: float) -> float:
        """Let the next keeper start after a pause. Return it, in seconds.

        Args:
            age: How long the last one lived, in seconds.
        """
        if age >= LONG_LIFE:
            self._young = 0
        pause = _PAUSES[min(self._young, len(_PAUSES) - 1)]
        self._young += 1
        self._retry_at = self.clock() + pause
        return pause

    def _forget(self) -> None:
        """Forget a keeper that has ended. What it reported before counts."""
        self._drain()
        self.keeper.detach()
        self._life = None
        self._last_tick, self.table.tick = self.table.tick or self._last_tick, 0.0

    def _drain(self) -> None:
        """Handle the messages that the keeper sent before it exited."""
        if self._life is not None:
            with suppress(BrokenLink):
                self._take_all(self._life.wire.receive() or ())

    def _replace(self) -> None:
        try:
            self._life = life = self._new_life()
        except OSError as error:
            self._last_end = f"cannot be started: {error}"
            if self._is_first():
                self._give_up(f"the keeper's process {self._last_end}")
                return
            self._pause_after(0.0)
            logger.error(  # noqa: TRY400
                "sqs-heartbeat: the keeper's process cannot be started: %s; the worker tries "
                "again, and receives no messages until a keeper runs",
                error,
            )
            return
        self._log_level = wanted_level()
        self._keepers += 1
        hello = replace(self.hello, level=self._log_level, keeper=self._keepers)
        greeting = [hello.message()]
        if self._last_tick > 0:
            greeting.append(("gap", self.clock() - self._last_tick, self._keepers - 1))
        self.keeper.attach(life.wire, greeting)

    def _new_life(self) -> _Life:
        """Start a process with one end of a new link.

        Raises:
            OSError: The system cannot start a process, or has no free file descriptors.
        """
        ours, theirs = socket.socketpair()
        wire = Wire(ours.detach())
        with theirs:
            try:
                child = self.launch(theirs.fileno(), *self.descriptors)
            except OSError:
                wire.close()
                raise
        liveness = LivenessMonitor(self.table, self.clock, lambda: is_busy(child.pid))
        return _Life(child, wire, liveness)


_all: WeakSet[LinkedKeeper] = WeakSet()


def _leave_all_to_parent() -> None:
    """Close the links in a forked child: they must not stay open after the worker has exited."""
    for keeper in tuple(_all):
        keeper.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)

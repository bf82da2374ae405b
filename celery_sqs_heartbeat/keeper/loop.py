"""Makes the calls which a book of leases plans, one step after the other."""

from __future__ import annotations

import functools
import logging
import math
import random
from collections.abc import Callable, Sequence

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher, SqsCalls, ThreadDispatcher
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.rounds import RoundsThread
from celery_sqs_heartbeat.keeper.uninterrupted import UninterruptedLock
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.calls import MAX_CALLS, Call, Outcome
from celery_sqs_heartbeat.leases.events import Event

logger = logging.getLogger(__name__)


class KeeperLoop:
    """Plans and settles calls around a book.

    Every attribute is guarded by one lock. The calls themselves are made, events reported
    and the log written outside it: it is the system's own, and under gevent or eventlet
    no greenlet may switch while it holds it.

    Args:
        sqs: Makes the calls.
        interval: Longest sleep of the thread, in seconds.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1.
        observer: Told of every event, from the keeper's threads.
        dispatcher: Has the calls made; on threads of its own where none is given.
        board: Shown every change of a lease, where one is given.
        on_late: Told by how many seconds the thread is late, or the process stood still.
    """

    def __init__(
        self,
        sqs: SqsCalls,
        *,
        interval: float = 1.0,
        clock: Callable[[], float] = clocks.now,
        jitter: Callable[[], float] = random.random,
        observer: Callable[[Event], None] = log_event,
        dispatcher: Dispatcher | None = None,
        board: Board | None = None,
        on_late: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._observer = observer
        self._jitter = jitter
        self._board = board
        self._on_late = on_late
        self._book = LeaseBook(jitter, board)
        self._dispatcher = dispatcher or ThreadDispatcher(sqs, MAX_CALLS)
        self._lock = UninterruptedLock()
        self._asleep_until = -math.inf
        self._rounds = RoundsThread(self.step, interval, clock, self._be_late)

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        The thread does nothing else in its rounds. Public for loops of another kind, as a
        simulation's: in seconds of the keeper's clock, and earlier whenever something
        was told to the keeper or a call was answered.
        """
        with self._lock:
            # Awake: what is told from here on is seen at the end of the step.
            self._asleep_until = -math.inf
            book, now = self._book, self._clock()
            book.give_up(now, self._dispatcher.give_up)
            calls = book.plan(now, MAX_CALLS - book.in_flight)
            events = book.take_events()
        self._dispatch(book, calls)
        self._report(events)
        with self._lock:
            self._asleep_until = self._next_step(self._clock())
            return self._asleep_until

    def _dispatch(self, book: LeaseBook, calls: Sequence[Call]) -> None:
        waiting = list(reversed(calls))
        try:
            while waiting:
                call = waiting[-1]
                self._dispatcher.dispatch(call, functools.partial(self._settle, book, call))
                waiting.pop()
        finally:
            # After an error: else their leases would wait for an answer for ever.
            for call in waiting:
                self._settle(book, call, [Outcome.UNKNOWN] * len(call.entries))

    def _next_step(self, now: float) -> float:
        if self._book.has_news:
            return now
        due = self._book.next_due(now, MAX_CALLS - self._book.in_flight)
        return min(due, now + self._interval)

    def _wake_if_due(self, now: float) -> None:
        if self._asleep_until > -math.inf and self._next_step(now) < self._asleep_until:
            self._asleep_until = -math.inf
            self._rounds.wake()

    def _settle(self, book: LeaseBook, call: Call, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            now = self._clock()
            try:
                book.settle(call, outcomes, now)
            finally:
                events = book.take_events()
                self._wake_if_due(now)
        self._report(events)

    def _be_late(self, seconds: float) -> None:
        try:
            self._on_late(seconds)
        except Exception:
            logger.exception("sqs-heartbeat: what is told of a late keeper failed")

    def _report(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._observer(event)
            except Exception:
                logger.exception("sqs-heartbeat: the observer failed on %s", event.kind.value)

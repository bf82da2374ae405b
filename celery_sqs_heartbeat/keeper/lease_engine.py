"""Makes the calls which a book of leases plans, one step after the other."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher
from celery_sqs_heartbeat.keeper.waiting import wait_for
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.calls import MAX_CALLS, Call, Outcome
from celery_sqs_heartbeat.leases.events import Event

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class LeaseEngine:
    """Plans and settles calls around a book.

    Every attribute is guarded by one lock, but for `_reporting`. The calls themselves are made,
    events reported and the log written outside it.

    Args:
        interval: The longest time between two steps, in seconds.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1.
        observer: Is given every event, on the threads of steps and calls, and of `clear`.
        dispatcher: Has the calls made.
        board: Is shown every change of a lease, where one is given.
        wake: Has the next step made now.
    """

    def __init__(
        self,
        *,
        interval: float,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        observer: Callable[[Event], None],
        dispatcher: Dispatcher,
        board: Board | None,
        wake: Callable[[], None],
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._observer = observer
        self._jitter = jitter
        self._board = board
        self._dispatcher = dispatcher
        self._wake = wake
        self._book = LeaseBook(jitter, board)
        self._lock = SignalSafeLock()
        self._asleep_until = -math.inf
        self._is_gathering = False
        #: The threads that may have events to report, an entry for each time.
        self._reporting: list[int] = []

    def now(self) -> float:
        """Return the time of its clock, in seconds."""
        return self._clock()

    @contextmanager
    def reading(self) -> Iterator[tuple[LeaseBook, float]]:
        """Let nothing change for a moment: yields the book, to be read only, and the time."""
        with self._lock:
            yield self._book, self._clock()

    def change(self, change: Callable[[LeaseBook, float], Result]) -> Result:
        """Change the book, and have what is due by that done soon; return what `change` does."""
        with self._lock:
            now = self._clock()
            result = change(self._book, now)
            self._wake_if_due(now)
            return result

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Look once, at its end, for what is due because of changes made within the block."""
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                self._wake_if_due(self._clock())

    def defer(self, job: Callable[[], object]) -> bool:
        """Have a job done when this thread has left the lock; see `SignalSafeLock`."""
        return self._lock.defer(job)

    @property
    def held(self) -> int:
        """How many leases the book has."""
        return len(self._book)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._book.ending

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        In seconds of the clock, and earlier where `wake` is called.
        """
        with self._reporting_after() as events:
            with self._lock:
                # Awake: what is changed from here on is seen at the end of the step.
                self._asleep_until = -math.inf
                book, now = self._book, self._clock()
                book.give_up(now, self._dispatcher.give_up)
                calls = book.plan(now, MAX_CALLS - book.in_flight)
                events += book.take_events()
            self._dispatch(book, calls)
        with self._lock:
            self._asleep_until = self._next_step(self._clock())
            return self._asleep_until

    def clear(self, stop: Callable[[], None]) -> None:
        """Begin a new book, and call `stop` before anything can come into it."""
        with self._reporting_after() as events, self._lock:
            events += self._book.take_events()
            self._book = LeaseBook(self._jitter, self._board)
            stop()

    def close(self, timeout: float) -> None:
        """Make no more calls, and wait until other threads have reported what has happened.

        The process may end after it: an event that is not reported by then is in no journal.

        Args:
            timeout: The longest wait for the observer, in seconds.
        """
        self._dispatcher.close()
        # An observer may have called this: no other one is to wait for it.
        mine = self._reporting.count(me := threading.get_ident())
        for _ in range(mine):
            self._reporting.remove(me)
        try:
            wait_for(lambda: not self._reporting or None, timeout)
        finally:
            self._reporting += [me] * mine

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
        if self._is_gathering or self._asleep_until == -math.inf:
            return
        if self._next_step(now) < self._asleep_until:
            self._asleep_until = -math.inf
            self._wake()

    def _settle(self, book: LeaseBook, call: Call, outcomes: Sequence[Outcome]) -> None:
        with self._reporting_after() as events, self._lock:
            now = self._clock()
            try:
                book.apply_results(call, outcomes, now)
            finally:
                events += book.take_events()
                self._wake_if_due(now)

    @contextmanager
    def _reporting_after(self) -> Iterator[list[Event]]:
        """Report after the block what it adds to the list that it is given; `close` waits for it.

        Also after an error. The lock must be left by then.
        """
        events: list[Event] = []
        me = threading.get_ident()
        self._reporting.append(me)
        try:
            yield events
        finally:
            try:
                self._report(events)
            finally:
                self._reporting.remove(me)

    def _report(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._observer(event)
            except Exception:
                logger.exception("sqs-heartbeat: the observer failed on %s", event.kind.value)

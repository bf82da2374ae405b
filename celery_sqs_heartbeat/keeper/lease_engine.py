"""Makes the calls that a book of leases plans, step by step."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.common.threads import wait_for
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.calls import MAX_CALLS, Call, Outcome
from celery_sqs_heartbeat.leases.events import MOST_HANGING, Event
from celery_sqs_heartbeat.leases.register import Board

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class LeaseEngine:
    """Plans the calls of a book and applies their results.

    One lock guards every attribute except `_reporting`. Calls are made, events reported and the
    log written outside the lock.

    Args:
        interval: The longest time between two steps, in seconds.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1.
        observer: Called with every event, on the threads of steps, of calls and of `clear`.
        dispatcher: Makes the calls.
        board: Shows every change of a lease, if given.
        wake: Starts the next step now.
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
        #: The queue of each call that was given up and has not returned.
        self._hanging: dict[int, str] = {}
        #: The threads that may have events to report: one entry for each `_reporting_after` block.
        self._reporting: list[int] = []

    def now(self) -> float:
        """Return the time of its clock, in seconds."""
        return self._clock()

    @contextmanager
    def reading(self) -> Iterator[tuple[LeaseBook, float]]:
        """Lock the book and yield it with the time. The caller only reads it."""
        with self._lock:
            yield self._book, self._clock()

    def change(self, change: Callable[[LeaseBook, float], Result]) -> Result:
        """Change the book and return the result of `change`. Wake the thread if a call is due."""
        with self._lock:
            now = self._clock()
            result = change(self._book, now)
            self._wake_if_due(now)
            return result

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Check once, at the end of the block, what is due because of the changes made in it."""
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                self._wake_if_due(self._clock())

    def defer(self, job: Callable[[], object]) -> bool:
        """Run a job when this thread has left the lock; see `SignalSafeLock`."""
        return self._lock.defer(job)

    @property
    def held(self) -> int:
        """How many leases the book has."""
        return len(self._book)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._book.ending

    @property
    def hanging(self) -> int:
        """How many calls were given up and have not returned."""
        return len(self._hanging)

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        The time is in seconds of the clock. `wake` makes the next step earlier.
        """
        with self._reporting_after() as events:
            with self._lock:
                # Awake: the end of the step sees all changes from here on.
                self._asleep_until = -math.inf
                book, now = self._book, self._clock()
                for call in book.give_up(now, self._dispatcher.give_up):
                    self._hanging[id(call)] = call.queue_url
                hanging = Counter(self._hanging.values())
                calls = book.plan(now, MAX_CALLS - book.agenda.in_flight)
                events += book.take_events()
            self._dispatch(book, calls, hanging)
        with self._lock:
            self._asleep_until = self._next_step(self._clock())
            return self._asleep_until

    def clear(self, stop: Callable[[], None]) -> None:
        """Begin a new book, and call `stop` before anything can be added to it."""
        with self._reporting_after() as events, self._lock:
            events += self._book.take_events()
            self._book = LeaseBook(self._jitter, self._board)
            stop()

    def close(self, timeout: float) -> None:
        """Make no more calls, and wait until other threads have reported their events.

        The process may end after this. The journal lacks any event that is not reported by then.

        Args:
            timeout: The longest wait for the observer, in seconds.
        """
        self._dispatcher.close()
        # An observer may have called this. Then its own thread must not be waited for.
        mine = self._reporting.count(me := threading.get_ident())
        for _ in range(mine):
            self._reporting.remove(me)
        try:
            wait_for(lambda: not self._reporting or None, timeout)
        finally:
            self._reporting += [me] * mine

    def _dispatch(self, book: LeaseBook, calls: Sequence[Call], hanging: Counter[str]) -> None:
        waiting = list(reversed(calls))
        try:
            while waiting:
                call = waiting[-1]
                apply_results = functools.partial(self._apply_results, book, call)
                if hanging[call.queue_url] < MOST_HANGING:
                    self._dispatcher.dispatch(call, apply_results)
                else:
                    apply_results([Outcome.FAILED] * len(call.entries))
                waiting.pop()
        finally:
            # After an error: without this their leases would wait for an answer indefinitely.
            for call in waiting:
                self._apply_results(book, call, [Outcome.UNKNOWN] * len(call.entries))

    def _next_step(self, now: float) -> float:
        if self._book.has_news:
            return now
        due = self._book.agenda.next_due(now, MAX_CALLS - self._book.agenda.in_flight)
        return min(due, now + self._interval)

    def _wake_if_due(self, now: float) -> None:
        if self._is_gathering or self._asleep_until == -math.inf:
            return
        if self._next_step(now) < self._asleep_until:
            self._asleep_until = -math.inf
            self._wake()

    def _apply_results(self, book: LeaseBook, call: Call, outcomes: Sequence[Outcome]) -> None:
        with self._reporting_after() as events, self._lock:
            now = self._clock()
            self._hanging.pop(id(call), None)
            try:
                book.apply_results(call, outcomes, now)
            finally:
                events += book.take_events()
                self._wake_if_due(now)

    @contextmanager
    def _reporting_after(self) -> Iterator[list[Event]]:
        """Yield a list, and after the block report the events added to it, even after an error.

        `close` waits for that. The block must have left the lock at its end.
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

"""Keeps a book of leases: makes the calls that it plans, and applies their results."""

from __future__ import annotations

import functools
import logging
import math
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import MAX_CALLS, MOST_HANGING, Call, Event, Outcome
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms, LeaseView
from celery_sqs_heartbeat.leases.message import (
    group_of,
    receive_count_of,
    sequence_number_of,
    time_of,
)
from celery_sqs_heartbeat.leases.policy import is_ours
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.leases.register import Board

if TYPE_CHECKING:
    from celery_sqs_heartbeat.sqs.adapter import BotoSqs

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

#: How often this process and those before it were forked. To ask the system for the number of the
#: process each time would cost a keeper a fifteenth of its CPU time.
_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


class LeaseEngine:
    """Keeps leases on received messages until their deletes are confirmed, if `step` is called.

    Any thread may use it. One lock guards every attribute except `_reporting`. Calls are made,
    events reported and the log written outside the lock. No error of SQS or the network reaches
    the caller. In a forked child it has no leases, because they are the parent's.

    Args:
        sqs: Makes the calls.
        terms: For messages that are received without terms. By default a visibility timeout
            of 30 s with a threshold of a third.
        interval: The longest time between two steps, in seconds.
        clock: Monotonic seconds.
        jitter: Returns a random number from 0 to 1, for the pauses between tries.
        observers: Called one after another with every event, on the threads of steps and of calls.
            An error of one does not affect the others.
        dispatcher: Has the calls made.
        board: Shows every change of a lease, if given.
    """

    def __init__(
        self,
        sqs: BotoSqs,
        *,
        terms: LeaseTerms | None = None,
        interval: float = 1.0,
        clock: Callable[[], float] = clocks.now,
        jitter: Callable[[], float] = random.random,
        observers: Sequence[Callable[[Event], None]] = (log_event,),
        dispatcher: ThreadDispatcher | None = None,
        board: Board | None = None,
    ) -> None:
        #: Returns the time of its clock, in seconds.
        self.now = clock
        self._terms = terms or LeaseTerms.of(30)
        self._interval = interval
        self._observers = observers
        self._dispatcher = dispatcher or ThreadDispatcher(sqs)
        self._new_book = functools.partial(LeaseBook, jitter, board)
        self._book = self._new_book()
        self._forks = _forks
        # Re-entrant for `gathering`.
        self._lock = threading.RLock()
        self._wakeup = AutoResetEvent()
        self._asleep_until = -math.inf
        self._is_gathering = False
        self._least_threshold = math.inf
        #: The queue of each call that was given up and has not returned.
        self._hanging: dict[int, str] = {}
        #: The threads that may have events to report: one entry for each `_reporting_after` block.
        self._reporting: list[int] = []

    # -- The book --------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many messages have a lease."""
        return len(self._book)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._book.ending

    @contextmanager
    def reading(self) -> Iterator[tuple[LeaseBook, float]]:
        """Lock the book and yield it with the time. The caller only reads it."""
        if self._is_forked:
            # Not the lock: the thread that holds it may not exist here.
            yield self._new_book(), self.now()
            return
        with self._lock:
            yield self._book, self.now()

    def change(self, change: Callable[[LeaseBook, float], Result]) -> Result:
        """Change the book and return the result of `change`. Wake the thread if a call is due."""
        if self._is_forked:
            return change(self._new_book(), self.now())
        with self._lock:
            now = self.now()
            result = change(self._book, now)
            self._wake_if_due(now)
            return result

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Check once, at the end of the block, what is due because of the changes made in it.

        The keeper does nothing else in the meantime, so keep the block short.
        """
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                self._wake_if_due(self.now())

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms | None = None,
        hidden_for: int | None = None,
        sent_at: float | None = None,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> ReceivedAs:
        """Begin a lease on a message as SQS returned it, or continue the lease that it has.

        Args:
            message: The message. The keeper reads its `MessageId`, its `ReceiptHandle` and, if
                requested from SQS, `Attributes["ApproximateReceiveCount"]`, `["SentTimestamp"]`
                and `["ApproximateFirstReceiveTimestamp"]`.
            hidden_for: The visibility timeout of the receive, in seconds, if it differs
                from that of the terms.
            sent_at: When the receive was sent, in seconds of the keeper's clock; now by
                default. SQS counts the visibility timeout from a later moment. A message
                whose visibility timeout has passed since `sent_at` gets no lease, so a
                receive must wait for less than that.
            max_receive_count: From the queue's redrive policy, for the journal; None without one.
        """
        terms = (terms or self._terms).with_room()

        def begin(book: LeaseBook, now: float) -> ReceivedAs:
            self._least_threshold = min(self._least_threshold, terms.threshold)
            receive = Receive(
                queue_url=queue_url,
                message_id=str(message["MessageId"]),
                receipt_handle=str(message["ReceiptHandle"]),
                receive_count=receive_count_of(message),
                hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
                sent_at=now if sent_at is None else sent_at,
                arrived_at=now,
                task=task,
                task_id=task_id,
                max_receive_count=max_receive_count,
                sent_time=time_of(message, "SentTimestamp"),
                first_received_time=time_of(message, "ApproximateFirstReceiveTimestamp"),
                group=group_of(message),
                sequence_number=sequence_number_of(message),
            )
            return book.receive(receive, terms=terms)

        return self.change(begin)

    def resume(self, lease: Lease, *, was_releasing: bool) -> None:
        """Continue a lease of an earlier keeper, as the keeper's owner knows it.

        Args:
            was_releasing: Whether a release may have been sent. It must not be repeated.
        """

        def go_on(book: LeaseBook, now: float) -> None:
            self._least_threshold = min(self._least_threshold, lease.terms.threshold)
            book.resume(lease, now, was_releasing=was_releasing)

        self.change(go_on)

    def remember(
        self,
        finished: Iterable[tuple[str, str]] = (),
        releases: Iterable[tuple[tuple[str, str], str, float]] = (),
    ) -> None:
        """Learn what an earlier keeper knew of messages without a lease, by queue and id.

        Args:
            finished: Those whose task has succeeded.
            releases: Those that SQS may still release by a handle, and when their lease was to
                expire.
        """

        def add(book: LeaseBook, _: float) -> None:
            for key in finished:
                book.finished.add(key)
            for release in releases:
                book.stale_calls.note_release(*release)

        self.change(add)

    def done(self, receipt_handle: str, cause: str = "") -> bool:
        """Delete the message, and retry until SQS confirms. False if no lease has that handle.

        `cause` is the reason, unless its task has succeeded.
        """
        return self.change(lambda book, now: book.done(receipt_handle, now, cause))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False if unknown.

        `cause` is the reason in a word or two, for the log, the metrics and the journal.
        """
        return self.change(lambda book, now: book.release(receipt_handle, delay, now, cause))

    def note_start(self, receipt_handle: str, *, at: float | None = None) -> bool:
        """Note that the message's task begins. False if unknown.

        Args:
            at: When it began, in seconds of the keeper's clock; None for now.
        """
        return self.change(
            lambda book, now: book.note_start(receipt_handle, now if at is None else at)
        )

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending, so that the lease expires. False if unknown.

        Args:
            cause: The reason. It is reported, unless it is empty.
        """
        return self.change(lambda book, now: book.let_expire(receipt_handle, now, cause))

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours now, as far as we know. True in a forked child."""
        with self.reading() as (book, now):
            lease = book.get(receipt_handle)
            return self._is_forked or (lease is not None and is_ours(lease, now))

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for an earlier one of its group."""
        with self.reading() as (book, _):
            return book.waits_behind(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle. Do not change it."""
        with self.reading() as (book, _):
            return book.get(receipt_handle)

    def leases(self) -> list[Lease]:
        """Return every lease. Do not change them."""
        with self.reading() as (book, _):
            return list(book)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all of the same moment."""
        with self.reading() as (book, now):
            return tuple(LeaseView.of(lease, now) for lease in book)

    # -- Its calls -------------------------------------------------------------------------

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        The time is in seconds of the keeper's clock. Call it earlier after any request to the
        keeper and after any answer of SQS.
        """
        with self._reporting_after() as events:
            with self._lock:
                # Awake: the end of the step sees all changes from here on.
                self._asleep_until = -math.inf
                book, now = self._book, self.now()
                for call in book.give_up(now, self._dispatcher.give_up):
                    self._hanging[id(call)] = call.queue_url
                calls = book.plan(now, MAX_CALLS - book.agenda.in_flight)
                events += book.take_events()
            self._dispatch(book, calls)
        with self._lock:
            self._asleep_until = self._next_step(self.now())
            return self._asleep_until

    def is_stuck(self, queue_url: str) -> bool:
        """Return whether so many calls of a queue hang that no more are made."""
        return list(self._hanging.values()).count(queue_url) >= MOST_HANGING

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
            self._wakeup.set()

    def _dispatch(self, book: LeaseBook, calls: Sequence[Call]) -> None:
        waiting = list(reversed(calls))
        try:
            while waiting:
                call = waiting[-1]
                apply_results = functools.partial(self._apply_results, book, call)
                if self.is_stuck(call.queue_url):
                    apply_results([Outcome.FAILED] * len(call.entries))
                else:
                    self._dispatcher.dispatch(call, apply_results)
                waiting.pop()
        finally:
            # After an error: without this their leases would wait for an answer indefinitely.
            for call in waiting:
                self._apply_results(book, call, [Outcome.UNKNOWN] * len(call.entries))

    def _apply_results(self, book: LeaseBook, call: Call, outcomes: Sequence[Outcome]) -> None:
        with self._reporting_after() as events, self._lock:
            now = self.now()
            self._hanging.pop(id(call), None)
            try:
                book.apply_results(call, outcomes, now)
            finally:
                events += book.take_events()
                self._wake_if_due(now)

    @contextmanager
    def _reporting_after(self) -> Iterator[list[Event]]:
        """Yield a list, and after the block report the events added to it, even after an error.

        `ThreadKeeper.stop` waits for that. The block must have left the lock at its end.
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
                # Unless it has stopped the keeper meanwhile.
                if me in self._reporting:
                    self._reporting.remove(me)

    def _report(self, events: Sequence[Event]) -> None:
        for event, observer in product(events, self._observers):
            try:
                observer(event)
            except Exception:
                logger.exception("sqs-heartbeat: an observer failed on %s", event.kind.value)

    @property
    def _is_forked(self) -> bool:
        return self._forks != _forks

"""The keeper of leases on threads of this process, with the methods that its owner calls."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.threads import wait_for
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher, SqsCalls, ThreadDispatcher
from celery_sqs_heartbeat.keeper.eventlog import log_event, log_unconfirmed
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.keeper.ticks import Ticks
from celery_sqs_heartbeat.leases.actions import is_ours
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms, LeaseView
from celery_sqs_heartbeat.leases.message import receive_of
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.leases.register import Board

#: How long the thread may take to end, and observers to process the last events, in seconds.
#: Neither waits for anything, unless it hangs.
_END_SECONDS = 5.0


class ThreadKeeper:
    """Keeps leases on received messages until their deletes are confirmed.

    One daemon thread plans. The calls run on a few more threads, several at once if one
    connection is too slow. Any thread may use the keeper. No error of SQS or the network
    reaches the caller. In a forked child every method does nothing, because the leases
    are the parent's.

    Args:
        sqs: Makes the calls, see `BotoSqs`.
        terms: For messages that are received without terms. By default a visibility timeout
            of 30 s with a threshold of a third.
        interval: Longest sleep of the thread, in seconds.
        clock: Monotonic seconds.
        late_after: How late a tick may be before it is reported, in seconds. By default the
            smallest threshold so far, or three intervals before there is one, and at least a
            second.
        jitter: Returns a random number from 0 to 1, for the pauses between tries.
        observer: Called with every event, on the keeper's threads.
        dispatcher: Makes the calls. By default, threads of this process do.
        board: Shows every change of a lease, if given.
        on_late: Called by the thread with the seconds that a tick took, if that was too long, or
            that the process did not run.
    """

    def __init__(
        self,
        sqs: SqsCalls,
        *,
        terms: LeaseTerms | None = None,
        interval: float = 1.0,
        clock: Callable[[], float] = clocks.now,
        late_after: float | None = None,
        jitter: Callable[[], float] = random.random,
        observer: Callable[[Event], None] = log_event,
        dispatcher: Dispatcher | None = None,
        board: Board | None = None,
        on_late: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._terms = terms or LeaseTerms.of(30)
        self._pid = os.getpid()
        self._ticks = Ticks(
            self.step,
            interval=interval,
            clock=clock,
            late_after=late_after,
            on_late=on_late,
        )
        self._engine = LeaseEngine(
            interval=interval,
            clock=clock,
            jitter=jitter,
            observer=observer,
            dispatcher=dispatcher or ThreadDispatcher(sqs),
            board=board,
            wake=self._ticks.wake,
        )

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        Each tick of the thread does only this. It is public for other loops, such as a
        simulation's. The time is in seconds of the keeper's clock. Call it earlier after any
        request to the keeper and after any answer of SQS.
        """
        return self._engine.step()

    def start(self) -> None:
        """Start the thread. Does nothing if it runs already.

        Raises:
            RuntimeError: The system refuses another thread.
        """
        if not self._is_forked():
            with self._engine.reading():
                self._ticks.start()

    def stop(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Flush, then end the thread. Does nothing if it is not running.

        Returns what `flush` returns.

        Leases that are still held expire: SQS makes their messages visible when their
        visibility timeouts have passed. `timeout` is the flush's, in seconds.
        """
        if self._is_forked() or not self._ticks.is_wanted:
            return True
        is_flushed = self.flush(timeout)
        self._engine.clear(self._ticks.stop)
        ends_at = time.monotonic() + _END_SECONDS
        self._ticks.join(_END_SECONDS)
        self._engine.close(max(0.0, ends_at - time.monotonic()))
        return is_flushed

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until SQS has confirmed every delete and release; False after `timeout` seconds.

        Deletes that wait for another try are tried at once. On a timeout, the unconfirmed
        deletes and releases are logged.
        """
        if self._is_forked() or not self._ticks.is_wanted:
            return True
        self._engine.change(lambda book, now: book.results.hurry_deletes(now))
        if wait_for(lambda: not self._engine.ending or None, timeout):
            return True
        with self._engine.reading() as (book, _):
            ending = [lease for lease in book if lease.goal is not Goal.HOLD]
        log_unconfirmed(ending, timeout)
        return not ending

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._engine.now()

    def defer(self, job: Callable[[], object]) -> bool:
        """Run a job right after the keeper's method that this thread is currently in.

        For signal handlers, see `SignalSafeLock`. If the thread is in no such method, it
        returns False and does not run the job.
        """
        return not self._is_forked() and self._engine.defer(job)

    def __len__(self) -> int:
        """How many messages have a lease."""
        return self._engine.held

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._engine.ending

    def gathering(self) -> AbstractContextManager[None]:
        """Check once, at the end of the block, what is due because of the calls made in it.

        The keeper does nothing else in the meantime, so keep the block short.
        """
        return nullcontext() if self._is_forked() else self._engine.gathering()

    @property
    def is_behind(self) -> bool:
        """Whether its ticks are late. Nothing should be received until they are not."""
        return self._ticks.health.late

    @property
    def health(self) -> KeeperHealth:
        """Its health. Reading it never blocks, even if its threads hang."""
        if self._is_forked():
            return KeeperHealth()
        return replace(self._ticks.health, hanging=self._engine.hanging)

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

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
        if self._is_forked():
            return ReceivedAs.NEW
        terms = (terms or self._terms).with_room()
        self._ticks.note_threshold(terms.threshold)

        def begin(book: LeaseBook, now: float) -> ReceivedAs:
            receive = receive_of(
                queue_url,
                message,
                hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
                sent_at=now if sent_at is None else sent_at,
                arrived_at=now,
                task=task,
                task_id=task_id,
                max_receive_count=max_receive_count,
            )
            return book.receive(receive, terms=terms)

        return self._engine.change(begin)

    def remember(
        self,
        finished: Iterable[tuple[str, str]] = (),
        releases: Iterable[tuple[tuple[str, str], str]] = (),
    ) -> None:
        """Learn what an earlier keeper knew of messages without a lease, by queue and id.

        Args:
            finished: Those whose task has succeeded.
            releases: Those that SQS may still release by a handle.
        """

        def add(book: LeaseBook, _: float) -> None:
            for key in finished:
                book.finished.add(key)
            for key, handle in releases:
                book.stale_calls.note_release(key, handle, 0.0)

        self._engine.change(add)

    def done(self, receipt_handle: str, cause: str = "") -> bool:
        """Delete the message, and retry until SQS confirms. False if no lease has that handle.

        `cause` is the reason, unless its task has succeeded.
        """
        return self._change(lambda book, now: book.done(receipt_handle, now, cause))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False if unknown.

        `cause` is the reason in a word or two, for the log, the metrics and the journal.
        """
        return self._change(lambda book, now: book.release(receipt_handle, delay, now, cause))

    def note_start(
        self,
        receipt_handle: str,
        pid: int | None = None,  # noqa: ARG002
        *,
        at: float | None = None,
    ) -> bool:
        """Note that the message's task begins in this process. False if unknown.

        Args:
            at: When it began, in seconds of the keeper's clock; None for now.
        """
        return self._change(
            lambda book, now: book.note_start(receipt_handle, now if at is None else at)
        )

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending, so that the lease expires. False if unknown.

        Args:
            cause: The reason. It is reported, unless it is empty.
        """
        return self._change(lambda book, now: book.let_expire(receipt_handle, now, cause))

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, even if its ack comes later. False if unknown."""
        return self._change(lambda book, now: book.disown(receipt_handle, now))

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours now, as far as we know."""
        if self._is_forked():
            return True
        with self._engine.reading() as (book, now):
            lease = book.get(receipt_handle)
            return lease is not None and is_ours(lease, now)

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether the message is no longer ours, according to SQS, or we gave it up.

        False if the lease has just expired: the message may still be ours, and an extension may
        save the lease. Once an extension could only disturb the next owner, the lease is lost.
        """
        if self._is_forked():
            return False
        with self._engine.reading() as (book, now):
            return book.is_lost(receipt_handle, now)

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        if self._is_forked():
            return False
        with self._engine.reading() as (book, _):
            return book.is_disowned(receipt_handle)

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for an earlier one of its group."""
        if self._is_forked():
            return False
        with self._engine.reading() as (book, _):
            return book.waits_behind(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle. Do not change it."""
        if self._is_forked():
            return None
        with self._engine.reading() as (book, _):
            return book.get(receipt_handle)

    def leases(self) -> list[Lease]:
        """Return every lease. Do not change them."""
        if self._is_forked():
            return []
        with self._engine.reading() as (book, _):
            return list(book)

    def resume(self, lease: Lease, *, was_releasing: bool) -> None:
        """Continue a lease of an earlier keeper, as the keeper's owner knows it.

        Args:
            was_releasing: Whether a release may have been sent. It must not be repeated.
        """
        self._ticks.note_threshold(lease.terms.threshold)

        def go_on(book: LeaseBook, now: float) -> None:
            book.resume(lease, now, was_releasing=was_releasing)

        self._engine.change(go_on)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all of the same moment."""
        if self._is_forked():
            return ()
        with self._engine.reading() as (book, now):
            return tuple(LeaseView.of(lease, now) for lease in book)

    def _change(self, change: Callable[[LeaseBook, float], bool]) -> bool:
        # A child must not touch anything of the parent's, least of all its lock.
        return True if self._is_forked() else self._engine.change(change)

"""The keeper of leases, on threads of this process: what its owner asks of it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher, SqsCalls, ThreadDispatcher
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.keeper.running import RunningTicks
from celery_sqs_heartbeat.keeper.unconfirmed import log_unconfirmed
from celery_sqs_heartbeat.keeper.waiting import wait_for
from celery_sqs_heartbeat.leases.actions import is_confirmed, is_ours
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.calls import MAX_CALLS
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.message import receive_of
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.leases.view import LeaseView

#: How long the thread may take to end, and observers to take what has happened last, in seconds:
#: neither waits for anything, unless it hangs.
_END_SECONDS = 5.0


class ThreadKeeper:
    """Keeps leases on received messages until their deletes are confirmed.

    One daemon thread plans; calls run on a few more, several at once when one
    connection is too slow for what is due. Safe to use from any thread; nothing that
    SQS or the network does raises into the caller. In a forked child every method does
    nothing: the leases are the parent's.

    Args:
        sqs: Makes the calls, see `BotoSqs`.
        terms: For messages that come without terms of their own; a visibility timeout
            of 30 s and a threshold of a third where none are given.
        interval: Longest sleep of the thread, in seconds.
        clock: Monotonic seconds.
        late_after: How late the thread's rounds may be before that is reported, in
            seconds; the smallest threshold so far, or a second, where it is not given.
        jitter: Returns a random number from 0 to 1, for the pauses between tries.
        observer: Is given every event, on the keeper's threads.
        dispatcher: Has the calls made; on threads of its own where none is given.
        board: Is shown every change of a lease, where one is given.
        on_late: Is called with the seconds by which the thread is late, or the process stood still.
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
        self._rounds = RunningTicks(
            step=self.step,
            guarded=lambda job: self._engine.change(lambda book, now: job()),
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
            dispatcher=dispatcher or ThreadDispatcher(sqs, MAX_CALLS),
            board=board,
            wake=self._rounds.wake,
        )

    def step(self) -> float:
        """Make the calls that are due and return when to call this again.

        The thread does nothing else in its rounds. Public for loops of another kind, as a
        simulation's: in seconds of the keeper's clock, and earlier whenever something
        was asked of the keeper or a call was answered.
        """
        return self._engine.step()

    def start(self) -> None:
        """Start the thread. Does nothing when it runs.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        if not self._is_forked():
            with self._engine.reading():
                self._rounds.start()

    def stop(self, timeout: float = FLUSH_SECONDS) -> None:
        """Flush, then end the thread. Does nothing when it is not running.

        Leases that are still held are dropped: their messages become visible by
        themselves. `timeout` is that of the flush, in seconds.
        """
        if self._is_forked() or not self._rounds.is_wanted:
            return
        self.flush(timeout)
        self._engine.clear(self._rounds.stop)
        ends_at = time.monotonic() + _END_SECONDS
        self._rounds.join(_END_SECONDS)
        self._engine.close(max(0.0, ends_at - time.monotonic()))

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long.

        Deletes that wait for another try are tried at once. It logs which are not confirmed.
        `timeout` is in seconds.
        """
        if self._is_forked() or not self._rounds.is_wanted:
            return True
        self.hurry()
        if not wait_for(lambda: not self._engine.ending or None, timeout):
            return self.report_unconfirmed(timeout)
        return True

    def hurry(self) -> None:
        """Try deletes at once that wait for another try."""
        self._engine.change(lambda book, now: book.hurry_deletes(now))

    def report_unconfirmed(self, waited: float) -> bool:
        """Log which deletes and releases are not confirmed; return whether that is none.

        Args:
            waited: For how long its owner has waited, in seconds.
        """
        with self._engine.reading() as (book, _):
            ending = [lease for lease in book.leases() if lease.goal is not Goal.HOLD]
        log_unconfirmed(ending, waited)
        return not ending

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._engine.now()

    def defer(self, job: Callable[[], object]) -> bool:
        """Have a job done right after the call of the keeper's that this thread is in.

        For handlers of signals, see `SignalSafeLock`. False, and the job is not done, where
        the thread is in none.
        """
        return not self._is_forked() and self._engine.defer(job)

    def __len__(self) -> int:
        """How many messages it keeps."""
        return self._engine.held

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._engine.ending

    def gathering(self) -> AbstractContextManager[None]:
        """Look once, at its end, for what is due because of what is said within the block.

        The keeper does nothing else meanwhile: so let it be short.
        """
        return nullcontext() if self._is_forked() else self._engine.gathering()

    @property
    def is_behind(self) -> bool:
        """Whether it can't take more messages for now: never, in its owner's process."""
        return False

    @property
    def health(self) -> KeeperHealth:
        """How its thread does. Waits for nothing, also where the thread hangs."""
        return KeeperHealth() if self._is_forked() else self._rounds.health

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
        """Begin a lease on a message as SQS returned it, or go on with the one it has.

        Args:
            message: Its `MessageId`, `ReceiptHandle` and, where asked for,
                `Attributes["ApproximateReceiveCount"]`, `["SentTimestamp"]` and
                `["ApproximateFirstReceiveTimestamp"]` are read.
            hidden_for: The visibility timeout of the receive, in seconds, where it is
                not that of the terms.
            sent_at: When the receive was sent, in seconds of the keeper's clock; SQS
                counts the visibility timeout from after it. Without it, from now.
                A message whose visibility timeout has passed since then is not leased:
                so let a receive wait for less than that.
            max_receive_count: Of the queue's redrive policy, for the journal; None without one.
        """
        if self._is_forked():
            return ReceivedAs.NEW
        terms = (terms or self._terms).with_room()
        self._rounds.note_threshold(terms.threshold)

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

    def take(
        self,
        receive: Receive,
        receipt: ReceivedAs,
        *,
        terms: LeaseTerms,
        is_certain: bool,
    ) -> None:
        """Take in a receive of which its receiver has decided what it is.

        Args:
            is_certain: Whether it knows of no release that may end the lease.
        """
        self._rounds.note_threshold(terms.threshold)

        def go_on(book: LeaseBook, _: float) -> None:
            book.receive(receive, terms=terms, receipt=receipt, is_certain=is_certain)

        self._engine.change(go_on)

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms. False when no lease has that handle."""
        return self._change(lambda book, now: book.done(receipt_handle, now))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False when unknown.

        `cause` says why, in a word or two, for the log, the metrics and the journal.
        """
        return self._change(lambda book, now: book.release(receipt_handle, delay, now, cause))

    def note_start(
        self,
        receipt_handle: str,
        pid: int | None = None,  # noqa: ARG002
        *,
        at: float | None = None,
    ) -> bool:
        """Note that the message's task begins, in this process. False when unknown.

        Args:
            at: When it began, in seconds of the keeper's clock; now where it is None.
        """
        return self._change(
            lambda book, now: book.note_start(receipt_handle, now if at is None else at)
        )

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending: the message becomes visible by itself. False when unknown.

        Args:
            cause: Why it is left to that; reported, unless empty.
        """
        return self._change(lambda book, now: book.let_expire(receipt_handle, now, cause))

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        True at once for one that is not extended, as there is nothing to wait for. False
        after `timeout` seconds without an answer.
        """
        if self._is_forked():
            return True
        return wait_for(lambda: self._is_confirmed(receipt_handle), timeout)

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later. False when unknown."""
        return self._change(lambda book, now: book.disown(receipt_handle, now))

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""
        if self._is_forked():
            return True
        with self._engine.reading() as (book, now):
            lease = book.get(receipt_handle)
            return lease is not None and is_ours(lease, now)

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up.

        False for one that has just expired: it may still be ours, and its lease may be saved.
        Once an extension could only disturb its next owner, it counts as lost.
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
        """Return whether a message must wait for another of its group."""
        if self._is_forked():
            return False
        with self._engine.reading() as (book, _):
            return book.waits_behind(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle. Read it only."""
        if self._is_forked():
            return None
        with self._engine.reading() as (book, _):
            return book.get(receipt_handle)

    def leases(self) -> list[Lease]:
        """Return every lease. Read them only."""
        if self._is_forked():
            return []
        with self._engine.reading() as (book, _):
            return list(book.leases())

    def resume(self, lease: Lease, *, was_releasing: bool) -> None:
        """Go on with a lease of a keeper that is gone, as its owner knows it.

        Args:
            was_releasing: A release of it may have been sent, and is not to be repeated.
        """
        self._rounds.note_threshold(lease.terms.threshold)

        def go_on(book: LeaseBook, now: float) -> None:
            book.resume(lease, now, was_releasing=was_releasing)

        self._engine.change(go_on)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease, all at one moment."""
        if self._is_forked():
            return ()
        with self._engine.reading() as (book, now):
            return tuple(LeaseView.of(lease, now) for lease in book.leases())

    def _is_confirmed(self, receipt_handle: str) -> bool | None:
        with self._engine.reading() as (book, now):
            return is_confirmed(book.get(receipt_handle), now)

    def _change(self, change: Callable[[LeaseBook, float], bool]) -> bool:
        # In a child nothing of the parent's may be touched, its lock least of all.
        return True if self._is_forked() else self._engine.change(change)

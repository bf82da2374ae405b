"""The keeper of leases: what its owner tells it, with Celery or without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.errors import AlreadyHeld, SqsHeartbeatError
from celery_sqs_heartbeat.keeper.dispatch import SqsCalls
from celery_sqs_heartbeat.keeper.service import KeeperService
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms, Standing, State
from celery_sqs_heartbeat.leases.message import receive_count_of, time_of
from celery_sqs_heartbeat.leases.receipts import Receipt, Receive
from celery_sqs_heartbeat.leases.view import LeaseView

#: How often a wait for a confirmation looks whether it is there, in seconds.
_CONFIRM_POLL = 0.005


class LeaseKeeper(KeeperService):
    """Keeps leases on received messages until their deletes are confirmed.

    One daemon thread plans; calls run on a few more, several at once when one
    connection is too slow for what is due. Safe to use from any thread; nothing that
    SQS or the network does raises into the caller. In a forked child every method does
    nothing: the leases are the parent's.

    Args:
        sqs: Makes the calls, see `BotoSqs`.
        terms: For messages that come without terms of their own; a visibility timeout
            of 30 s and a threshold of a third where none are given.
        service: See `KeeperService` and `KeeperLoop`: interval, clock, late_after, jitter,
            observer, dispatcher, board.
    """

    def __init__(self, sqs: SqsCalls, *, terms: LeaseTerms | None = None, **service: Any) -> None:
        super().__init__(sqs, **service)
        self._terms = terms or LeaseTerms.of(30)

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
    ) -> Receipt:
        """Begin a lease on a message as SQS returned it, or go on with the one it has.

        Args:
            message: Its `MessageId`, `ReceiptHandle` and, where asked for,
                `Attributes["ApproximateReceiveCount"]`, `["SentTimestamp"]` and
                `["ApproximateFirstReceiveTimestamp"]` are read.
            hidden_for: The visibility timeout of the receive, in seconds, where it is
                not that of the terms.
            sent_at: When the receive was sent, in seconds of the keeper's clock; SQS
                counts the visibility timeout from after it. Without it, from now.
                A message that is told of when its visibility timeout has passed since then
                is not leased: so let a receive wait for less than that.
            max_receive_count: Of the queue's redrive policy, for the journal; None without one.
        """
        if self._is_forked():
            return Receipt.NEW
        terms = (terms or self._terms).with_room()
        self._note_terms(terms)
        with self._lock:
            now = self._clock()
            receive = Receive(
                queue_url=queue_url,
                message_id=str(message["MessageId"]),
                receipt_handle=str(message["ReceiptHandle"]),
                receive_count=receive_count_of(message),
                hidden_for=terms.visibility_timeout if hidden_for is None else hidden_for,
                sent_at=now if sent_at is None else sent_at,
                arrived_at=now,
            )
            receipt = self._book.receive(
                receive,
                terms=terms,
                task=task,
                task_id=task_id,
                max_receive_count=max_receive_count,
                sent_time=time_of(message, "SentTimestamp"),
                first_received_time=time_of(message, "ApproximateFirstReceiveTimestamp"),
            )
            self._wake_if_due(now)
            return receipt

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms. False when no lease has that handle."""
        return self._change(lambda now: self._book.done(receipt_handle, now))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False when unknown.

        `cause` says why, in a word or two, to whoever logs, counts or journals it.
        """
        return self._change(lambda now: self._book.release(receipt_handle, delay, now, cause))

    def note_start(self, receipt_handle: str) -> bool:
        """Note that the message's task begins. False when unknown."""
        return self._change(lambda now: self._book.note_start(receipt_handle, now))

    def drop(self, receipt_handle: str) -> bool:
        """Stop extending: the message becomes visible by itself. False when unknown."""
        return self._change(lambda now: self._book.drop(receipt_handle))

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        True at once for one that is not extended, as there is nothing to wait for. False
        after `timeout` seconds without an answer.
        """
        if self._is_forked():
            return True
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                lease = self._book.get(receipt_handle)
                if lease is None or lease.state is not State.HELD:
                    return False
                if lease.standing is Standing.UNLEASED or not lease.terms.extend:
                    return True
                if lease.extensions or lease.standing is not Standing.OURS:
                    return lease.certain and self.owns(receipt_handle)
            if time.monotonic() >= deadline:
                return False
            # Not on a lock: a greenlet that waits must let others run.
            time.sleep(_CONFIRM_POLL)

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later. False when unknown."""
        return self._change(lambda now: self._book.disown(receipt_handle))

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""
        if self._is_forked():
            return True
        with self._lock:
            lease = self._book.get(receipt_handle)
            return (
                lease is not None
                and lease.standing in (Standing.OURS, Standing.UNLEASED)
                and self._clock() < lease.expires_at
            )

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up.

        False for one that has just expired: it may still be ours, and its lease may be saved.
        Once an extension could only disturb its next owner, it counts as lost.
        """
        if self._is_forked():
            return False
        with self._lock:
            return self._book.is_lost(receipt_handle, self._clock())

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        if self._is_forked():
            return False
        with self._lock:
            return self._book.is_disowned(receipt_handle)

    @contextmanager
    def hold(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms | None = None,
        sent_at: float | None = None,
        release_delay: float | Callable[[int], float] = 0,
    ) -> Iterator[Lease]:
        """Keep a message while the block runs; then delete it, or release it on an error.

        A message that `receive` was already told of is held on. `flush` or `stop` waits
        for the delete to be confirmed.

        Args:
            release_delay: After how many seconds the message is visible again after an error: a
                number, or a function of the message's receive count.

        Raises:
            AlreadyHeld: The message must not be processed (again); the block is not run.
        """
        if self._is_forked():
            raise SqsHeartbeatError(
                "this LeaseKeeper belongs to the parent process: make one in the child"
            )
        handle = str(message["ReceiptHandle"])
        with self._lock:
            lease = self._book.get(handle)
            receipt = Receipt.NEW
            if lease is None:
                receipt = self.receive(queue_url, message, terms=terms, sent_at=sent_at)
                lease = self._book.get(handle)
        if lease is None or receipt is not Receipt.NEW or lease.state is not State.HELD:
            raise AlreadyHeld(
                f"message {message['MessageId']} of {queue_url} is {receipt.value}: "
                "skip it, it is taken care of"
            )
        self.note_start(handle)
        try:
            yield lease
        except BaseException:
            delay = 0.0
            try:
                count = lease.receive_count
                delay = release_delay(count) if callable(release_delay) else release_delay
            finally:
                self.release(handle, delay, cause="failed")
            raise
        self.done(handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the lease that has, or once had, that handle. Read it only."""
        if self._is_forked():
            return None
        with self._lock:
            return self._book.get(receipt_handle)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease, all at one moment."""
        if self._is_forked():
            return ()
        with self._lock:
            now = self._clock()
            return tuple(LeaseView.of(lease, now) for lease in self._book.leases())

    def _change(self, change: Callable[[float], bool]) -> bool:
        if self._is_forked():
            # Nothing of the parent's may be touched, its lock least of all.
            return True
        with self._lock:
            now = self._clock()
            known = change(now)
            self._wake_if_due(now)
            return known

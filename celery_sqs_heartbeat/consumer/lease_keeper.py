"""The lease keeper for consumers without Celery."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.consumer.backing import Backing
from celery_sqs_heartbeat.errors import AlreadyHeld, ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.keeper.dispatch import Dispatcher, SqsCalls
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.board import Board
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.leases import Leases
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.leases.view import LeaseView
from celery_sqs_heartbeat.settings.release_policies import BACKOFF


class LeaseKeeper:
    """Keeps leases on received messages until their deletes are confirmed.

    Safe to use from any thread. No error of SQS or the network is raised in the caller.
    In a forked child every method does nothing, because the leases are the parent's. Only `hold`
    raises there.

    Args:
        sqs: Makes the calls, see `BotoSqs`.
        terms: For messages that are received without terms. The default is a visibility timeout
            of 30 s and a threshold of a third.
        interval: Longest sleep of the keeper, in seconds.
        clock: Monotonic seconds.
        late_after: How late the keeper's ticks may be before that is reported, in
            seconds. The default is the smallest threshold so far, or a second.
        jitter: Returns a random number from 0 to 1, for the pauses between tries.
        observer: Gets every event, on the keeper's threads.
        dispatcher: Makes the calls. The default makes them on separate threads.
        board: Gets every change of a lease.
        on_late: Called with the seconds by which the keeper is late, or was stopped.
        process: Run the keeper in a process of its own instead of on threads of this one. Then
            nothing that delays, patches or kills this process harms a lease. A thread that
            listens to the keeper calls `observer` and `on_late`. Cannot be combined with `clock`,
            `jitter`, `dispatcher` and `board`. `sqs` must be a `BotoSqs` with boto3 clients.
        session: `module:function` of a function that returns the `boto3.Session` of that process.
            Without it, the process finds its credentials as boto3 does.

    Raises:
        ConfigurationError: `process` cannot be combined with another argument, or `session` makes
            no session.
        SqsHeartbeatError: The system has no memory to share with the process.
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
        process: bool = False,
        session: str | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._backing: Backing
        #: Returns the leases. Those of a process last from one start to the next stop.
        self._leases: Callable[[], Leases]
        if process:
            # Imported here because it needs boto3, which a keeper on threads does not.
            from celery_sqs_heartbeat.consumer.process_opening import open_process

            process_keeper = open_process(
                sqs,
                terms=terms,
                interval=interval,
                clock=clock,
                late_after=late_after,
                jitter=jitter,
                observer=observer,
                dispatcher=dispatcher,
                board=board,
                on_late=on_late,
                session=session,
            )
            self._backing, self._leases = process_keeper, lambda: process_keeper.leases
            return
        if session is not None:
            raise ConfigurationError(
                [f"session={session!r}: needs process=True: leave it out, or set both"]
            )
        keeper = ThreadKeeper(
            sqs,
            terms=terms,
            interval=interval,
            clock=clock,
            late_after=late_after,
            jitter=jitter,
            observer=observer,
            dispatcher=dispatcher,
            board=board,
            on_late=on_late,
        )
        self._backing, self._leases = keeper, lambda: keeper

    def start(self) -> None:
        """Start keeping leases. Does nothing if the keeper has started already.

        A process is ready about a second later. It also keeps messages that are received meanwhile.

        Raises:
            RuntimeError: The system grants no more threads.
        """
        self._backing.start()

    def stop(self, timeout: float = FLUSH_SECONDS) -> None:
        """Flush, then end. Does nothing if the keeper is not running.

        Leases that are still held are dropped: their messages become visible after their
        visibility timeout. `timeout` limits the flush, in seconds.
        """
        self._backing.stop(timeout)

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long.

        Deletes that wait for another try are tried at once. Unconfirmed ones are logged.
        `timeout` is in seconds.
        """
        return self._backing.flush(timeout)

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._leases().now()

    def __len__(self) -> int:
        """How many messages it keeps."""
        return len(self._leases())

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._leases().ending

    @property
    def is_alive(self) -> bool:
        """Whether the keeper's thread or process runs."""
        return self.health.alive

    @property
    def health(self) -> KeeperHealth:
        """The health of the keeper. Returns at once, even if the keeper hangs."""
        return self._backing.health

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
        """Begin a lease on a message as SQS returned it, or continue the one it has.

        Args:
            message: Its `MessageId`, `ReceiptHandle` and, if the receive requested them,
                `Attributes["ApproximateReceiveCount"]`, `["SentTimestamp"]` and
                `["ApproximateFirstReceiveTimestamp"]` are read.
            hidden_for: The visibility timeout of the receive, in seconds, if it differs from
                the one of the terms.
            sent_at: When the receive was sent, in seconds of the keeper's clock. SQS
                counts the visibility timeout from a later moment. The default is now.
                A message whose visibility timeout has passed since then is not leased,
                so let a receive wait for less than that.
            max_receive_count: Of the queue's redrive policy, for the journal; None without one.

        Raises:
            ConfigurationError: The keeper runs in another process, which cannot make the client
                that a function returned for the queue.
        """
        return self._backing.receive(
            queue_url,
            message,
            terms=terms,
            hidden_for=hidden_for,
            sent_at=sent_at,
            max_receive_count=max_receive_count,
            task=task,
            task_id=task_id,
        )

    @contextmanager
    def hold(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms | None = None,
        sent_at: float | None = None,
        release_delay: float | Callable[[int], float] = BACKOFF,
    ) -> Iterator[Lease]:
        """Keep a message while the block runs; then delete it, or release it on an error.

        If the message was passed to `receive`, its lease continues. `flush` or `stop` waits
        for the delete to be confirmed. With `process=True` the yielded lease shows its state at
        the last call of `find`, `owns` or `is_lost`.

        Args:
            release_delay: After how many seconds the message is visible again after an error: a
                number, or a function of the message's receive count. By default at once after the
                first receive, then 2, 4, 8, ... up to 300, less up to half of that at random.

        Raises:
            AlreadyHeld: The message must not be processed (again); the block does not run.
            ConfigurationError: See `receive`.
        """
        lease = self._hold(queue_url, message, terms, sent_at)
        handle = str(message["ReceiptHandle"])
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

    def _hold(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        terms: LeaseTerms | None,
        sent_at: float | None,
    ) -> Lease:
        if self._pid != os.getpid():
            raise SqsHeartbeatError(
                "this LeaseKeeper belongs to the parent process: make one in the child"
            )
        handle = str(message["ReceiptHandle"])
        lease, receipt = self.find(handle), ReceivedAs.NEW
        if lease is None:
            receipt = self.receive(queue_url, message, terms=terms, sent_at=sent_at)
            lease = self.find(handle)
        if lease is None or receipt is not ReceivedAs.NEW or lease.goal is not Goal.HOLD:
            raise AlreadyHeld(
                f"message {message['MessageId']} of {queue_url} is {receipt.value}: "
                "skip it, it is being handled"
            )
        return lease

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms it. False if no lease has that handle."""
        return self._leases().done(receipt_handle)

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False if the handle is unknown.

        `cause` says why, in a word or two, for the log, the metrics and the journal.
        """
        return self._leases().release(receipt_handle, delay, cause)

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins, in this process or `pid`.

        False if the handle is unknown.
        """
        return self._leases().note_start(receipt_handle, pid)

    def let_expire(self, receipt_handle: str) -> bool:
        """Stop extending the lease and let it expire. False if the handle is unknown."""
        return self._leases().let_expire(receipt_handle)

    def drop(self, receipt_handle: str) -> bool:
        """Call `let_expire`, its new name. This one goes with version 0.2."""
        warnings.warn("drop is now let_expire", DeprecationWarning, stacklevel=2)
        return self.let_expire(receipt_handle)

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, even if its ack comes later.

        False if the handle is unknown.
        """
        return self._leases().disown(receipt_handle)

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        True at once if the lease is not extended, because there is nothing to wait for. False
        after `timeout` seconds without an answer.
        """
        return self._leases().confirm(receipt_handle, timeout)

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is still ours, as far as is known."""
        return self._leases().owns(receipt_handle)

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is no longer ours, or we gave it up.

        False if the lease has just expired: the message may still be ours, and an extension may
        save the lease. Once an extension could only disturb the next owner, it counts as lost.
        """
        return self._leases().is_lost(receipt_handle)

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return self._leases().is_disowned(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the current lease that has, or once had, that handle. Do not change it."""
        return self._leases().find(receipt_handle)

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all at one moment."""
        return self._leases().snapshot()

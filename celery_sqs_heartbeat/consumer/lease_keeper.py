"""The lease keeper for consumers without Celery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.errors import AlreadyHeld, SqsHeartbeatError
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.settings.release_policies import BACKOFF


class LeaseKeeper(ThreadKeeper):
    """Keeps leases on received messages until their deletes are confirmed.

    Its threads run in the consumer's process; `ThreadKeeper` describes the arguments. Safe to use
    from any thread. No error of SQS or the network is raised in the caller. In a forked child every
    method does nothing, because the leases are the parent's. Only `hold` raises there.
    """

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
        for the delete to be confirmed.

        Args:
            release_delay: After how many seconds the message is visible again after an error: a
                number, or a function of the message's receive count. By default at once after the
                first receive, then 2, 4, 8, ... up to 300, less up to half of that at random.

        Raises:
            AlreadyHeld: The message must not be processed (again); the block does not run.
        """
        lease = self._begin_holding(queue_url, message, terms, sent_at)
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

    def _begin_holding(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        terms: LeaseTerms | None,
        sent_at: float | None,
    ) -> Lease:
        if self._is_forked():
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

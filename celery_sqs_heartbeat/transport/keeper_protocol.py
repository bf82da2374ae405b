"""The interface of the keeper that the transport and the worker use.

A `ThreadKeeper` in this process implements it. Any other object that does can take its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.leases import Leases
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.sqs.clients import BrokerConfig


class Keeper(Leases, Protocol):
    """Keeps leases on received messages until their deletes are confirmed."""

    def gathering(self) -> AbstractContextManager[None]:
        """Collect the calls made in the block, and pass them on together when it ends."""

    @property
    def is_behind(self) -> bool:
        """Whether it is not running, or can't accept more messages at present."""

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms,
        hidden_for: int,
        sent_at: float,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> ReceivedAs:
        """Begin a lease on a message as SQS returned it, or continue its present lease.

        Args:
            hidden_for: The visibility timeout of the receive, in seconds.
            sent_at: When the receive was sent, in seconds of the keeper's clock.
            max_receive_count: Of the queue's redrive policy, for the journal.
        """


class Reaching(Protocol):
    """Learns how to reach queues: a `ClientPool`, or an object that informs another process."""

    def use(
        self, config: BrokerConfig, queue_url: str, threshold: float, address: str | None = None
    ) -> None:
        """Reach a queue with `config`, and with timeouts that fit `threshold` (seconds).

        Args:
            address: The URL at which the queue is reached from now on, if it is another.
        """

    def hurry(self, queue_url: str, threshold: float) -> None:
        """Shorten the timeouts of calls for a queue if `threshold` (seconds) requires it."""

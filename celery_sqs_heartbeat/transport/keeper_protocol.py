"""What the transport and the worker need of the keeper of leases.

A `ThreadKeeper` in this process has all of it; anything else that has it will do as well.
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
        """Hand on what is said within the block at its end, all at once."""

    @property
    def is_behind(self) -> bool:
        """Whether it is not there, or can't take more messages for now."""

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
        """Begin a lease on a message as SQS returned it, or go on with the one it has.

        Args:
            hidden_for: The visibility timeout of the receive, in seconds.
            sent_at: When the receive was sent, in seconds of the keeper's clock.
            max_receive_count: Of the queue's redrive policy, for the journal.
        """


class Reaching(Protocol):
    """Learns how queues are reached: a `ClientPool`, or what hands it to another process."""

    def use(
        self, config: BrokerConfig, queue_url: str, threshold: float, address: str | None = None
    ) -> None:
        """Reach a queue by `config`, with timeouts that fit `threshold` (seconds).

        Args:
            address: The URL it is reached at from now on, where that is another one.
        """

    def hurry(self, queue_url: str, threshold: float) -> None:
        """Shorten the timeouts of calls for a queue where `threshold` (seconds) asks for it."""

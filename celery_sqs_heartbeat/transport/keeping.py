"""What the transport and the worker need of the keeper of leases.

A `ThreadKeeper` in this process has all of it; anything else that has it will do as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from celery_sqs_heartbeat.leases.lease import LeaseTerms, Standing, State
from celery_sqs_heartbeat.leases.receipts import Receipt
from celery_sqs_heartbeat.sqs.clients import BrokerConfig


class KeptLease(Protocol):
    """What is read of a lease. Times are seconds of the keeper's clock.

    `Keeper.find` returns the same object for as long as the lease lasts, under each handle that
    its message was received by; what it says changes as the keeper learns more.
    """

    @property
    def key(self) -> tuple[str, str]:
        """The identity of its message, which stays the same over redeliveries."""

    @property
    def queue_url(self) -> str:
        """The URL that leases on the queue's messages go by."""

    @property
    def message_id(self) -> str:
        """SQS's id of its message."""

    @property
    def receipt_handle(self) -> str:
        """That of the message's latest receive."""

    @property
    def receive_count(self) -> int:
        """How many receives of the message SQS has counted."""

    @property
    def task(self) -> str | None:
        """The name of the message's task, where it has one."""

    @property
    def task_id(self) -> str | None:
        """The id of that task."""

    @property
    def terms(self) -> LeaseTerms:
        """What it is kept by."""

    @property
    def state(self) -> State:
        """What is wanted for it."""

    @property
    def standing(self) -> Standing:
        """How good our claim is."""

    @property
    def held_since(self) -> float:
        """When the first of the message's receives here was asked for."""

    @property
    def received_at(self) -> float:
        """When its latest receive was asked for."""


class Keeper(Protocol):
    """Keeps leases on received messages until their deletes are confirmed.

    May be called from any thread and raises nothing that SQS or the network does. Messages go
    by the receipt handles that they were received by, the older ones of a message, too. What
    returns a bool returns whether there was a lease for it, unless it says something else.
    """

    def __len__(self) -> int:
        """How many messages it keeps."""

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""

    def gathering(self) -> AbstractContextManager[None]:
        """Hand on what is said within the block at its end, all at once."""

    @property
    def is_behind(self) -> bool:
        """Whether it is not there, or can't take more messages for now."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""

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
    ) -> Receipt:
        """Begin a lease on a message as SQS returned it, or go on with the one it has.

        Args:
            hidden_for: The visibility timeout of the receive, in seconds.
            sent_at: When the receive was sent, in seconds of the keeper's clock.
            max_receive_count: Of the queue's redrive policy, for the journal.
        """

    def find(self, receipt_handle: str) -> KeptLease | None:
        """Return the lease that has, or once had, that handle. Read it only."""

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins.

        Args:
            pid: The process that runs it; this one where it is None.
        """

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms."""

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds.

        Args:
            cause: Why, in a word or two.
        """

    def drop(self, receipt_handle: str) -> bool:
        """Stop extending: the message becomes visible by itself."""

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later."""

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours.

        Args:
            timeout: The longest wait, in seconds; False after that.
        """

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up."""

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""


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

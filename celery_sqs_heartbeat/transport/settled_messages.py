"""The messages whose end the keeper knows before their channel does."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.transport.keeper_protocol import Keeper
from celery_sqs_heartbeat.transport.lease_rules import LeaseRules


class SettledMessages:
    """A request's ack or reject goes to the keeper at once, and to the channel when it can.

    The channel has nothing left to do for the message at SQS then. That memory is bounded: an
    ack or a reject never gets to a channel that was lost.
    """

    def __init__(self, *, keeper: Keeper, rules: LeaseRules) -> None:
        self._keeper = keeper
        self._rules = rules
        self._tags: RecentKeys[str] = RecentKeys()

    def ack(self, lease: Lease, delivery_tag: str) -> None:
        """Have an acked message deleted before the ack gets to its channel."""
        if not self._rules.acks_inline(lease):
            self._keeper.done(delivery_tag)
            self.note(delivery_tag)

    def note(self, delivery_tag: str) -> None:
        """Note that the keeper knows a message's end."""
        self._tags.add(delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Note that the ack or reject of a message has got to its channel."""
        self._tags.discard(delivery_tag)

    def has(self, delivery_tag: str) -> bool:
        """Return whether its channel has nothing left to do for a message at SQS."""
        return delivery_tag in self._tags or self._keeper.is_disowned(delivery_tag)

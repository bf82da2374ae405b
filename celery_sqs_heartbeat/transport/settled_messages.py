"""The messages that were settled at the keeper before their channel learned of it."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.link.client import LinkedKeeper


class SettledMessages:
    """Remembers acks and rejects that went to the keeper and have not reached the channel yet.

    The keeper gets a request's ack or reject at once, and the channel when possible. The channel
    then has nothing left to do for the message at SQS. The memory has a size limit, because
    an ack or a reject never reaches a channel that was lost.
    """

    def __init__(self, *, keeper: LinkedKeeper) -> None:
        self._keeper = keeper
        self._tags: RecentKeys[str] = RecentKeys()

    def ack(self, delivery_tag: str) -> None:
        """Delete an acked message before the ack reaches its channel."""
        self._keeper.done(delivery_tag)
        self.note(delivery_tag)

    def note(self, delivery_tag: str) -> None:
        """Note that a message was settled at the keeper."""
        self._tags.add(delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Note that the ack or reject of a message has reached its channel."""
        self._tags.discard(delivery_tag)

    def has(self, delivery_tag: str) -> bool:
        """Return whether a message's channel has nothing left to do for it at SQS."""
        return delivery_tag in self._tags or self._keeper.is_disowned(delivery_tag)

"""Counts a channel's prefetched messages."""

from __future__ import annotations

from kombu.transport import SQS


class QoS(SQS.QoS):
    """Counts prefetched messages as kombu does, and reports when there is room again."""

    def can_consume(self) -> bool:
        """Return whether another message may be received."""
        has_slot = super().can_consume() and self.can_consume_max_estimate() != 0
        return bool(has_slot and self.channel.has_room())

    def can_consume_max_estimate(self) -> int | None:
        """Return how many messages may be received; None without a limit.

        Messages that wait for another of their group take no slot. But a slot is reserved for
        each of them that will be delivered soon.
        """
        free: int | None = super().can_consume_max_estimate()
        return None if free is None else max(0, free - self.channel.next_up())

    def ack(self, delivery_tag: str) -> None:
        """Free the message's prefetch slot, and poll the queues for which there is room now."""
        super().ack(delivery_tag)
        self.channel.poll_more()

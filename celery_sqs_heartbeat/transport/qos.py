"""The count of a channel's prefetched messages."""

from __future__ import annotations

from kombu.transport import SQS


class QoS(SQS.QoS):
    """Counts prefetched messages as kombu does, and says when there is room again."""

    def can_consume(self) -> bool:
        """Return whether another message may be received."""
        return bool(super().can_consume() and self.channel.has_room())

    def ack(self, delivery_tag: str) -> None:
        """Free the message's prefetch slot, and have queues that wait for one polled."""
        super().ack(delivery_tag)
        self.channel.poll_waiting_queues()

"""The keeper's end of the link, as far as it receives for the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.link.deliveries import Outlet
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.messages import lease_fields, read_queue
from celery_sqs_heartbeat.link.serving import NumberedLeases
from celery_sqs_heartbeat.receiving.group_waitlist import Arrived
from celery_sqs_heartbeat.receiving.reception import Reception


class HandOver:
    """Hands messages over to the worker.

    Args:
        leases: Knows the number of each lease.
        outlet: Takes the messages.
        send: Sends the worker a message over the link.
    """

    def __init__(
        self, leases: NumberedLeases, outlet: Outlet, send: Callable[[Message], object]
    ) -> None:
        self._leases = leases
        self._outlet = outlet
        self._send = send

    def deliver(self, channel: int, messages: list[Arrived]) -> int:
        """Hand messages over. Return how many of them have ended by now, and were not."""
        headed: list[tuple[Message, Mapping[str, Any]]] = [
            ((channel, each.queue.name, number, *lease_fields(each.lease)), each.message)
            for each in messages
            if (number := self._leases.live_number(each.handle)) is not None
        ]
        if headed and not self._outlet.send(headed):
            self.keep(messages)
        return len(messages) - len(headed)

    def keep(self, messages: list[Arrived]) -> None:
        """Have the worker know the handles of messages that would be lost with this process."""
        for each in messages:
            number = self._leases.live_number(each.handle)
            if number is not None:
                self._send(("kept", number, lease_fields(each.lease)))


def take(reception: Reception, message: list[Any]) -> bool:
    """Handle a message of the worker about receiving. Return False if it is about anything else."""
    match message:
        case ["consume", int(channel), list(queues)]:
            reception.consume(channel, map(read_queue, queues))
        case ["cancel", int(channel), str(queue)]:
            reception.cancel(channel, queue)
        case ["close", int(channel)]:
            reception.close(channel)
        case ["end"]:
            reception.end()
        case _:
            return False
    return True

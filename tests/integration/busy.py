"""A consumer with a prefetch count, whose polls the test answers at the proxy."""

from __future__ import annotations

import sys
from typing import Any

from kombu import Consumer, Queue

from tests.integration.test_transport import ChannelHarness
from tests.support.answers import Answer, Body
from tests.support.faults import Forward
from tests.support.held_polls import HeldPoll, HeldPolls
from tests.support.waiting import wait_until


def confirm(body: Body, forward: Forward) -> Answer:
    """Confirm a delete or an extension of messages that the server does not know."""
    return Answer.of({"Successful": [{"Id": entry["Id"]} for entry in body["Entries"]]})


class Busy:
    """A consumer with a prefetch count, of its desk's queue and `others` more.

    Attributes:
        held: The messages that it has got, and not acked.
        returned: How many messages its polls have returned.
    """

    def __init__(self, desk: ChannelHarness, prefetch: int, *, others: int = 0) -> None:
        self.desk = desk
        self.held: list[Any] = []
        self.polls = HeldPolls(desk.proxy)
        self.returned = self._delivered = 0
        self._most = prefetch or sys.maxsize
        desk.proxy.rule(("DeleteMessageBatch", "ChangeMessageVisibilityBatch"), confirm)
        desk.channel.basic_qos(0, prefetch, False)
        names = [f"{desk.name}-{number}" for number in range(others)]
        for name in names:
            desk.client.create_queue(QueueName=name)
        queues = [Queue(name, channel=desk.channel) for name in names]
        Consumer(desk.channel, queues, on_message=self._take).consume()
        desk.consume(self._take)
        desk.drain_until(lambda: self.polls.open)
        self.settle()

    @property
    def open(self) -> list[HeldPoll]:
        """Its polls, those that wait for long first."""
        return sorted(self.polls.open, key=lambda poll: -poll.waits)

    @property
    def requested(self) -> list[int]:
        """How many messages each of its polls asks for."""
        return sorted(poll.count for poll in self.polls.open)

    @property
    def waits(self) -> list[int]:
        return [poll.waits for poll in self.open]

    def answer(self, poll: HeldPoll, count: int) -> None:
        """Answer a poll with that many messages."""
        self.answer_unread(poll, count)
        self.settle()

    def answer_unread(self, poll: HeldPoll, count: int) -> None:
        """Answer a poll. The consumer's thread does something else."""
        self.returned += count
        poll.answer(count)
        wait_until(self._is_still)

    def fill(self, poll: HeldPoll) -> None:
        """Answer a poll with all messages that it asks for."""
        self.answer(poll, poll.count)

    def ack(self, count: int = 1) -> None:
        for _ in range(count):
            self.held.pop().ack()

    @property
    def waiting(self) -> int:
        """How many of the messages its consumer has not got."""
        return self.returned - self._delivered

    def settle(self) -> None:
        """Wait until every poll has arrived at the proxy, and at the consumer what it may hold."""
        self.desk.drain_until(
            lambda: not (self.waiting and len(self.held) < self._most) and self._is_still()
        )

    def look(self) -> None:
        """Do what a worker does every second."""
        self.desk.look()
        self.settle()

    def close(self) -> None:
        self.desk.channel.feed.stop()
        self.polls.end()
        self.desk.joined.join()

    def _is_still(self) -> bool:
        self.desk.joined.settle()
        return len(self.desk.polls) == len(self.polls.open)

    def _take(self, message: Any) -> None:
        self._delivered += 1
        self.held.append(message)

"""A leased channel without a network: the test supplies the messages that it receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu import Connection, Consumer, Queue

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs, QueueAttributes
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from tests.support.board import Board
from tests.support.insides import slots_taken
from tests.support.loop import FakePolls

NAME = "q"
URL = "https://sqs.us-east-1.amazonaws.com/1/q"


class NoCalls:
    """Takes calls and never answers them."""

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        pass

    def give_up(self, call: Call) -> bool:
        return True

    def close(self) -> None:
        pass


class FakeDesk:
    """A consumer on a channel with leases. `take` is called with each delivered message."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        clients = ClientPool()
        self._board = Board()
        self.keeper = ThreadKeeper(BotoSqs(clients), dispatcher=NoCalls(), board=self._board)
        self.heartbeat = Heartbeat(
            keeper=self.keeper,
            settings=Settings(),
            queues=QueueDirectory(lambda url: QueueAttributes(), lambda job: job()),
            clients=clients,
        )
        bind(self.heartbeat)
        self.connection = Connection(
            "sqs://key:secret@",
            transport=Transport,
            transport_options={"predefined_queues": {NAME: {"url": URL}}},
        )
        self.channel = self.connection.channel()
        # As when a worker dies.
        self.channel.qos.restore_at_shutdown = False
        self.polls = FakePolls(self.channel)
        queue = Queue(NAME, channel=self.channel)
        self.consumer = Consumer(self.channel, [queue], on_message=take, auto_declare=False)
        self.consumer.consume()
        self._poll = self.polls.open()

    def answer(self, answer: Any) -> None:
        """Answer the queue's long poll."""
        self._poll.answer(answer)

    def held(self) -> set[str]:
        """The handles of the leases that the keeper continues to extend."""
        leases = self._board.leases()
        return {lease.receipt_handle for lease in leases if lease.goal is Goal.HOLD}

    def slots_taken(self) -> set[str]:
        """The messages that count against the prefetch limit."""
        return slots_taken(self.channel)

    def close(self) -> None:
        """Clean up, without a call to SQS."""
        self.connection.release()
        bind(None)

"""A leased channel without a network: the test supplies the messages that it receives."""

from __future__ import annotations

import contextlib
import socket
import threading
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock, patch

from kombu import Connection, Consumer, Queue

from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs import long_polls
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from tests.support.insides import slots_taken
from tests.support.joined import Joined
from tests.support.waiting import PATIENCE, wait_until

NAME = "q"
URL = "https://sqs.us-east-1.amazonaws.com/1/q"


class FakeDesk:
    """A consumer on a channel with leases.

    Attributes:
        take: Is called with each delivered message.
        channel: The channel.
        consumer: The consumer, which the test may cancel and let consume again.
    """

    def __init__(self) -> None:
        self.take: Any = None
        self._answers: SimpleQueue[Any] = SimpleQueue()
        polls = Mock(ClientPool)
        polls.return_value = Mock(receive_message=self._poll)
        self._waiting = threading.Semaphore(0)
        # Its calls are never answered.
        self._joined = Joined(poll_clients=polls, dispatcher=Mock())
        self.keeper = self._joined.keeper
        heartbeat = Heartbeat(
            keeper=self._joined.worker,
            settings=Settings(),
            queues=QueueDirectory(lambda url: QueueAttributes(), lambda job: job()),
            clients=self._joined.clients,
        )
        bind(heartbeat)
        options = {"predefined_queues": {NAME: {"url": URL}}, "polling_interval": 0}
        self.connection = Connection(
            "sqs://key:secret@", transport=Transport, transport_options=options
        )
        self.channel = self.connection.channel()
        # As when a worker dies.
        self.channel.qos.restore_at_shutdown = False
        queue = Queue(NAME, channel=self.channel)
        self.consumer = Consumer(
            self.channel, [queue], on_message=lambda message: self.take(message), auto_declare=False
        )

    def consume(self) -> None:
        self.consumer.consume()
        self._deliver()
        assert self._waiting.acquire(timeout=PATIENCE)
        self._waiting.release()

    def _poll(self, **_: Any) -> Any:
        self._waiting.release()
        try:
            return self._answers.get(timeout=PATIENCE)
        finally:
            self._waiting.acquire()

    def answer(self, answer: Any) -> None:
        """Answer the queue's long poll, and deliver its messages."""
        polls = set(self._joined.reception.polls)
        with patch.object(long_polls, "logger") as log:
            self._answers.put(answer)
            # The thread of the poll has taken them when it ends the poll.
            wait_until(lambda: polls - set(self._joined.reception.polls))
        # It would log the errors of the poll's thread.
        assert not log.mock_calls
        self._deliver()

    def _deliver(self) -> None:
        self._joined.hear()
        with contextlib.suppress(socket.timeout):
            while True:
                self.connection.drain_events(timeout=0)

    def held(self) -> set[str]:
        """The handles of the leases that the keeper continues to extend."""
        return {each.receipt_handle for each in self.keeper.leases() if each.goal is Goal.HOLD}

    def slots_taken(self) -> set[str]:
        """The messages that count against the prefetch limit."""
        return slots_taken(self.channel)

    def close(self) -> None:
        """Clean up, without a call to SQS."""
        self.channel.feed.stop()
        for _ in range(long_polls.MAX_POLLS):
            self._answers.put({})
        self._joined.join()
        self.connection.release()
        self._joined.close()
        bind(None)

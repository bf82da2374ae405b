"""A leased channel without a network: the test supplies the messages that it receives."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock, patch

from kombu import Connection, Consumer, Queue

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.leases.calls import Call
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


class NoCalls:
    """Takes calls and never answers them."""

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        pass

    def give_up(self, call: Call) -> bool:
        return True

    def close(self) -> None:
        pass


class _Clients(ClientPool):
    """Has one client, with this method."""

    def __init__(self, receive_message: Callable[..., Any]) -> None:
        super().__init__()
        self._client = Mock(receive_message=receive_message)

    def __call__(self, queue_url: str) -> Any:
        return self._client


class FakeDesk:
    """A consumer on a channel with leases. `take` is called with each delivered message."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._receives = 0
        self._joined = Joined(poll_clients=_Clients(self._receive), dispatcher=NoCalls())
        self.keeper = self._joined.keeper
        self.heartbeat = Heartbeat(
            keeper=self._joined.worker,
            settings=Settings(),
            queues=QueueDirectory(lambda url: QueueAttributes(), lambda job: job()),
            clients=self._joined.clients,
        )
        bind(self.heartbeat)
        self.connection = Connection(
            "sqs://key:secret@",
            transport=Transport,
            transport_options={"predefined_queues": {NAME: {"url": URL}}, "polling_interval": 0},
        )
        self.channel = self.connection.channel()
        # As when a worker dies.
        self.channel.qos.restore_at_shutdown = False
        queue = Queue(NAME, channel=self.channel)
        self.consumer = Consumer(self.channel, [queue], on_message=take, auto_declare=False)
        self.consumer.consume()
        self._deliver()
        wait_until(lambda: self._receives)

    def answer(self, answer: Any) -> None:
        """Answer the queue's long poll, and deliver its messages."""
        with patch.object(long_polls, "logger") as log:
            self._answers.put(answer)
            # The thread of the poll has taken them when it makes the next one, or ends.
            wait_until(lambda: self._receives > 1 or not self._joined.reception.polls)
        # It would log the errors of the poll's thread.
        assert not log.mock_calls
        self._deliver()

    def _receive(self, **_: Any) -> Any:
        self._receives += 1
        return self._answers.get(timeout=PATIENCE)

    def _deliver(self) -> None:
        self._joined.hear()
        with contextlib.suppress(socket.timeout):
            while True:
                self.connection.drain_events(timeout=0)

    def held(self) -> set[str]:
        """The handles of the leases that the keeper continues to extend."""
        leases = self.keeper.leases()
        return {lease.receipt_handle for lease in leases if lease.goal is Goal.HOLD}

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

"""A keeper that its worker stops reads the polls that are open, and then releases what is left."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.sharing import SharedFile
from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.link import keeper_main
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.held_messages import HandedOver, HeldMessages
from celery_sqs_heartbeat.link.messages import Hello, reach
from celery_sqs_heartbeat.receiving import reception
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.support.held_polls import HeldPolls
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

#: In seconds: no message becomes visible again by its timeout during a test.
TIMEOUT = 600
#: The channel that consumes, and how many messages it may hold.
CHANNEL, ROOM = 1, 20


class Kept:
    """A keeper on a thread, and its worker's end. The worker reads messages only by `pull`.

    Attributes:
        arrived: What the worker has read.
    """

    def __init__(
        self, proxy: FaultProxy, table: Table, descriptor: int, has_ended: threading.Event
    ) -> None:
        self._has_ended = has_ended
        self._client = proxy.client()
        self.url: str = self._client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:12]}")[
            "QueueUrl"
        ]
        self.polls = HeldPolls(proxy)
        ours, theirs = socket.socketpair()
        inlet, outlet = delivery_sockets()
        self.worker = LinkedKeeper(HeldMessages(table), Inlet(inlet.detach()))
        self.arrived: list[HandedOver] = []
        self.worker.on_arrived = lambda arrived: self.arrived.extend(each for _, each in arrived)
        links = (theirs.detach(), outlet.detach(), descriptor)
        self._thread = threading.Thread(
            target=keeper_main.run, args=links, kwargs={"logs": False}, daemon=True
        )
        self._thread.start()
        self.worker.attach(Wire(ours.detach()), [Hello(pid=os.getpid()).message()])
        config = BrokerConfig(
            endpoint_url=proxy.url,
            region="us-east-1",
            use_ssl=False,
            access_key="a",
            secret_key="b",
        )
        self.worker.order(*reach(config, self.url, 10.0, self.url))
        queue = ConsumedQueue(
            name="q",
            url=self.url,
            lease_url=self.url,
            terms=LeaseTerms.of(TIMEOUT),
            timeout=TIMEOUT,
        )
        self.worker.consume(CHANNEL, [queue])
        self.worker.allow(CHANNEL, lambda: (ROOM - len(self.arrived), ROOM))
        wait_until(lambda: self.polls.open)

    def publish(self, count: int) -> None:
        for _ in range(count):
            self._client.send_message(QueueUrl=self.url, MessageBody="{}")

    def deliver(self, count: int) -> None:
        """Send messages, answer the open poll with them, and wait until there is another one."""
        (poll,) = self.polls.open
        self.publish(count)
        poll.forward()
        wait_until(lambda: self.polls.open)

    def read(self, count: int) -> list[HandedOver]:
        """Have the worker read so many messages."""

        def has_read() -> bool:
            self.worker.pull()
            return len(self.arrived) == count

        wait_until(has_read)
        return self.arrived

    def counts(self) -> tuple[int, int]:
        """Return how many messages are visible, and how many are not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        visible, hidden = (int(answer["Attributes"][name]) for name in names)
        return visible, hidden

    def begin_stop(self) -> None:
        """Do what a worker's end does, and wait until the keeper begins no more polls."""
        self.worker.end_receiving()
        self.worker.order("stop", 5.0)
        assert self._has_ended.wait(PATIENCE)

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.begin_stop()
        self.polls.end()
        self.join()
        self.worker.detach()
        self.worker.close_inlet()


@pytest.fixture
def kept(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    outlets: list[Outlet] = []

    def note(descriptor: int, keeper: int) -> Outlet:
        outlets.append(Outlet(descriptor, keeper))
        return outlets[-1]

    end, has_ended = reception.Reception.end, threading.Event()

    def end_and_note(self: reception.Reception) -> None:
        end(self)
        has_ended.set()

    monkeypatch.setattr(keeper_main, "Outlet", note)
    monkeypatch.setattr(reception.Reception, "end", end_and_note)
    with closing(SharedFile(Table.size_for(REACH))) as file:
        made = Kept(proxy, Table(mmap(file.descriptor, 0)), file.descriptor, has_ended)
        yield made
        made.close()
        # Its process would end here. Its thread ends with the worker.
        for thread in threading.enumerate():
            if thread.name == "sqs-heartbeat-rooms":
                thread.join(PATIENCE)
        for outlet in outlets:
            outlet._socket.close()


def test_a_message_on_its_way_to_a_worker_that_ends_is_released(kept: Kept) -> None:
    kept.deliver(2)
    assert kept.counts() == (0, 2)
    kept.begin_stop()
    kept.polls.end()
    kept.join()
    assert kept.counts() == (2, 0)


def test_a_message_whose_task_runs_as_its_worker_ends_is_not_released(kept: Kept) -> None:
    kept.deliver(2)
    first, second = kept.read(2)
    kept.worker.note_start(first.handle)
    kept.worker.done(second.handle)
    kept.begin_stop()
    kept.polls.end()
    kept.join()
    assert kept.counts() == (0, 1)


def test_messages_that_a_poll_brings_after_the_stop_are_released(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reception, "READ_GRACE", PATIENCE)
    kept.publish(2)
    kept.begin_stop()
    kept.polls.open[0].forward()
    kept.join()
    assert kept.counts() == (2, 0)
    assert "is not answered yet" not in caplog.text


def test_a_keeper_waits_a_while_for_a_poll_that_is_never_answered(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reception, "READ_GRACE", 0.1)
    kept.begin_stop()
    kept.join()
    assert len(kept.polls.open) == 1
    assert "a poll that was open when the shutdown began is not answered yet" in caplog.text

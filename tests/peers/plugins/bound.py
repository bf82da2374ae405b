"""Our channel with a heartbeat whose calls all succeed, new for each test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from kombu.transport import SQS

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.transport.channel import Channel
from celery_sqs_heartbeat.transport.settling import QoS
from tests.peers.plugins import transport  # noqa: F401

SQS.Channel = Channel
SQS.QoS = QoS


class Sqs:
    """Confirms every call."""

    def send(self, call: Call) -> Sequence[Outcome]:
        """Answer a call."""
        return [Outcome.DONE] * len(call.entries)


@pytest.fixture(autouse=True)
def bound_heartbeat() -> Iterator[None]:
    """Bind a heartbeat to the channels that a test makes."""
    keeper = ThreadKeeper(Sqs())
    bind(
        Heartbeat(
            keeper=keeper,
            settings=read_settings({}.get),
            queues=QueueDirectory(lambda url: QueueAttributes(), lambda job: job()),
            clients=ClientPool(),
        )
    )
    yield
    bind(None)

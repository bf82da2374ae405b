"""Our channel with a heartbeat that has no keeper, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

import pytest
from kombu.transport import SQS

from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import FedChannel
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.transport.settling import QoS
from tests.peers.plugins import transport  # noqa: F401

SQS.Channel = FedChannel
SQS.QoS = QoS


@pytest.fixture(autouse=True)
def bound_heartbeat() -> Iterator[None]:
    """Bind a heartbeat to the channels that a test makes."""
    ours, theirs = delivery_sockets()
    held = HeldMessages(Table(mmap(-1, Table.size_for(1))))
    keeper = LinkedKeeper(held, Inlet(ours.detach()))
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
    keeper.close_inlet()
    theirs.close()

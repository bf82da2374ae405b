"""The first messages that a new keeper gets from a worker that has run for a long time."""

from __future__ import annotations

import socket
from mmap import mmap

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.support.leases import lease_of


def test_a_new_keeper_of_an_ending_worker_gets_every_lease_before_the_order_to_stop() -> None:
    held = HeldMessages(Table(mmap(-1, Table.size_for(REACH))))
    deliveries = delivery_sockets()
    keeper = LinkedKeeper(held, Inlet(deliveries[0].detach()))
    keeper.order("reach", "q")
    keeper.order("stop", 15)
    keeper.consume(1, [ConsumedQueue(name="q", url="q", lease_url="q", terms=LeaseTerms.of(30))])
    # More leases than fit into one frame. After a frame a keeper may handle other work.
    for number in range(150):
        held.add(lease_of(f"handle-{number}", message_id=str(number)), {})
    held.done("handle-0", 0.0)
    ours, theirs = socket.socketpair()
    other_end = Wire(theirs.detach())
    keeper.attach(Wire(ours.detach()), [("hello",)])
    kinds = [message[0] for message in other_end.receive() or ()]
    # It receives, and ends, once it knows them.
    assert kinds == ["hello", "reach", "finished", *["resume"] * 150, "consume", "stop"]
    keeper.detach()
    keeper.close_inlet()
    deliveries[1].close()
    other_end.close()

"""The first messages that a new keeper gets from a worker that has run for a long time."""

from __future__ import annotations

import socket
from mmap import mmap

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import Wire
from celery_sqs_heartbeat.link.held_messages import HeldMessages


def test_a_new_keeper_of_an_ending_worker_gets_every_lease_before_the_order_to_stop() -> None:
    keeper = LinkedKeeper(HeldMessages(Table(mmap(-1, Table.size_for(REACH)))))
    keeper.order("reach", "q", about=("q",))
    keeper.order("stop", 15)
    # More leases than fit into one frame. After a frame a keeper may handle other work.
    for number in range(150):
        keeper.receive(
            "q",
            {"MessageId": str(number), "ReceiptHandle": f"handle-{number}"},
            terms=LeaseTerms.of(30),
            hidden_for=30,
            sent_at=keeper.now(),
        )
    ours, theirs = socket.socketpair()
    other_end = Wire(theirs.detach())
    keeper.attach(Wire(ours.detach()), [("hello",)])
    kinds = [message[0] for message in other_end.receive() or ()]
    assert kinds == ["hello", "reach", *["resume"] * 150, "stop"]
    keeper.detach()
    other_end.close()

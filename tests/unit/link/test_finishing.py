"""A keeper that has done its last work may take seconds to exit."""

from __future__ import annotations

import os
import socket
import threading
import time
from mmap import mmap

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.child import LOOK_SECONDS
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import Hello
from tests.support.waiting import wait_until
from tests.unit.link.pairs import Far

#: In seconds: more checks in a row without a tick than a working keeper may have.
WITHOUT_TICK = 10 * LOOK_SECONDS


class SlowToEnd:
    """A keeper's process that closes its link long before it exits."""

    pid = 0

    def __init__(self, link: int) -> None:
        self.link = socket.socket(fileno=os.dup(link))
        self.ends_at = float("inf")
        self.was_killed = False

    def has_ended(self) -> bool:
        return self.was_killed or time.monotonic() >= self.ends_at

    def kill(self) -> None:
        self.was_killed = True

    def describe_end(self) -> str:
        return "exit status 0"


def test_a_keeper_that_has_closed_its_link_at_the_workers_end_is_not_taken_to_hang() -> None:
    table = Table(mmap(-1, Table.size_for(REACH)))
    children: list[SlowToEnd] = []

    def start(link: int, *_: int) -> SlowToEnd:
        children.append(SlowToEnd(link))
        return children[-1]

    ours, theirs = delivery_sockets()
    attendant = Attendant(
        LinkedKeeper(HeldMessages(table), Inlet(ours.detach())),
        hello=Hello(pid=os.getpid()),
        table=table,
        descriptors=(theirs.fileno(), 0),
        on_event=lambda _: None,
        start=start,
    )
    attendant.begin()
    attendant.start()
    stopping = threading.Thread(target=attendant.stop, args=(5.0,))
    stopping.start()
    keeper = Far(children[0].link)
    wait_until(lambda: ["stop", 5.0] in keeper.read())
    # In this order: while its link is open, it must tick.
    keeper.close()
    table.tick = time.monotonic()
    children[0].ends_at = time.monotonic() + WITHOUT_TICK
    stopping.join()
    theirs.close()
    assert len(children) == 1
    assert not children[0].was_killed

"""A process that forks while one of its threads uses the worker's side of the link."""

from __future__ import annotations

import os
import socket
import threading
from mmap import mmap

import pytest

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import Hello
from tests.support.held import HeldClock
from tests.support.waiting import PATIENCE


class Listening:
    """Stands for a keeper's process, which has the other end of the link."""

    pid = 1

    def __init__(self, link: int, deliveries: int, table: int) -> None:
        del deliveries, table
        self.socket = socket.socket(fileno=os.dup(link))

    def has_ended(self) -> bool:
        return False

    def kill(self) -> None:
        pass

    def describe_end(self) -> str:
        return "still running"


class Scene:
    """A keeper's attendant, and a clock that can stop a thread which has the keeper's lock."""

    def __init__(self) -> None:
        self.held = HeldClock()
        table = Table(mmap(-1, Table.size_for(REACH)))
        ours, self.theirs = delivery_sockets()
        self.keeper = LinkedKeeper(HeldMessages(table), Inlet(ours.detach()), clock=self.held)
        self.children: list[Listening] = []
        self.attendant = Attendant(
            self.keeper,
            hello=Hello(pid=os.getpid()),
            table=table,
            descriptors=(-1, -1),
            on_event=lambda event: None,
            start=self._start,
        )
        self.attendant.begin()
        table.tick = 1.0

    def _start(self, *descriptors: int) -> Listening:
        self.children.append(Listening(*descriptors))
        return self.children[-1]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_child_waits_for_no_lock_and_closes_its_copy_of_the_link(scene: Scene) -> None:
    with scene.held.amid_a_change(scene.keeper):
        child = os.fork()
        if child == 0:
            # Forked: the hook that closes the link has run by now.
            os._exit(0 if scene.keeper.fileno() == -1 else 1)
        watch = threading.Timer(PATIENCE, os.kill, (child, 9))
        watch.start()
        _, status = os.waitpid(child, 0)
        watch.cancel()
    assert os.waitstatus_to_exitcode(status) == 0
    assert scene.keeper.fileno() >= 0
    scene.keeper.detach()
    scene.attendant.leave_to_parent()
    # The parent had the last open end.
    (listening,) = scene.children
    listening.socket.setblocking(True)
    while listening.socket.recv(1 << 16):
        pass
    listening.socket.close()
    # Nor may the child keep the deliveries open.
    scene.theirs.setblocking(True)
    assert scene.theirs.recv(1) == b""
    scene.theirs.close()

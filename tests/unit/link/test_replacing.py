"""Each keeper that is replaced counts, however long it lived: its successor shows how many were."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from celery_sqs_heartbeat.current.sharing import (
    VARIABLE,
    share_table,
    shared_descriptor,
    unshare_table,
)
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.frames import FrameReader
from celery_sqs_heartbeat.link.hello import Hello
from celery_sqs_heartbeat.link.holdings import Holdings
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import wait_until

#: A keeper that lives for longer has no pause before its successor starts.
LONG_LIFE = 61.0


@dataclass
class FakeChild:
    """A keeper that does nothing until it ends."""

    link: int
    pid: int = 0
    ended: bool = False

    def has_ended(self) -> bool:
        return self.ended

    def kill(self) -> None:
        self.ended = True

    def describe_end(self) -> str:
        return "exit status 0"

    def end_when_it_is_to(self) -> None:
        reader = FrameReader()
        while not any(kind == "stop" for kind, *_ in reader.feed(os.read(self.link, 1 << 18))):
            pass
        self.ended = True


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    yield
    unshare_table()


def test_keepers_that_lived_for_long_count_as_replaced_all_the_same() -> None:
    table, clock = share_table(8), FakeClock(1000.0)
    children: list[FakeChild] = []

    def start(link: int, table: int) -> FakeChild:
        children.append(FakeChild(os.dup(link)))
        return children[-1]

    attendant = Attendant(
        LinkedKeeper(Holdings(table), clock=clock),
        hello=Hello(pid=os.getpid()),
        table=table,
        descriptor=shared_descriptor(),
        on_event=lambda event: None,
        start=start,
        clock=clock,
    )
    attendant.begin()
    attendant.start()
    for count in range(1, 4):
        table.tick = clock()
        clock.advance(LONG_LIFE)
        children[-1].ended = True
        wait_until(lambda count=count: len(children) == count + 1)  # type: ignore[misc]
    assert attendant.deaths == 3
    stopping = threading.Thread(target=attendant.stop, args=(0.0,))
    stopping.start()
    children[-1].end_when_it_is_to()
    stopping.join()
    for child in children:
        os.close(child.link)

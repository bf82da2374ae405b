"""Which messages of a receive are still ours when they are about to be delivered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.sqs.long_polls import Poll, Source
from celery_sqs_heartbeat.testing import SimulatedSqs
from celery_sqs_heartbeat.transport.delivery import Leaser

URL = "https://sqs/1/orders.fifo"


def poll_sent_at(sent_at: float) -> Poll:
    source = Source("q", lambda poll: ())
    return Poll(source=source, count=10, booked=10, is_beside=False, sent_at=sent_at, timeout=30)


class Scene:
    """A keeper and its leases."""

    def __init__(self) -> None:
        self.keeper = ThreadKeeper(SimulatedSqs())
        heartbeat = cast("Any", SimpleNamespace(keeper=self.keeper, queues=None, once=None))
        self._leaser = Leaser(kombu=cast("Any", None), heartbeat=heartbeat, acks=cast("Any", None))

    def receive(self, name: str) -> None:
        message = {"MessageId": name, "ReceiptHandle": name}
        self.keeper.receive(URL, message, terms=LeaseTerms.of(30))

    def kept(self, *names: str) -> list[str]:
        poll = poll_sent_at(clock.now())
        payloads: list[Any] = [{"properties": {"delivery_tag": name}} for name in names]
        return [
            each["properties"]["delivery_tag"] for each in self._leaser.keep_ours(poll, payloads)
        ]


def test_a_held_message_is_ours() -> None:
    scene = Scene()
    scene.receive("m1")
    assert scene.kept("m1") == ["m1"]


def test_a_message_to_be_released_is_not_ours() -> None:
    scene = Scene()
    scene.receive("m1")
    scene.keeper.release("m1", cause="group stopped")
    assert scene.kept("m1") == []


def test_a_message_that_is_already_released_is_not_ours() -> None:
    # While the worker waited for another message's extension, which may take seconds.
    scene = Scene()
    assert scene.kept("m1") == []


class Unconfirmed:
    """A keeper whose extensions get no answer. Waiting for them moves a clock forward."""

    def __init__(self) -> None:
        self.now = 100.0
        self.dropped: list[str] = []

    def find(self, handle: str) -> SimpleNamespace:
        terms = LeaseTerms.of(30)
        return SimpleNamespace(message_id=handle, goal=Goal.HOLD, terms=terms)

    def confirm(self, handle: str, timeout: float) -> bool:
        self.now += max(0.0, timeout)
        return False

    def let_expire(self, handle: str, cause: str) -> None:
        self.dropped.append(handle)


def test_a_late_receive_waits_once_for_all_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = Unconfirmed()
    monkeypatch.setattr(clock, "now", lambda: keeper.now)
    heartbeat = cast("Any", SimpleNamespace(keeper=keeper, queues=None, once=None))
    leaser = Leaser(kombu=cast("Any", None), heartbeat=heartbeat, acks=cast("Any", None))
    poll = poll_sent_at(keeper.now - 25)
    payloads: list[Any] = [{"properties": {"delivery_tag": tag}} for tag in ("m1", "m2", "m3")]
    assert leaser.keep_ours(poll, payloads) == []
    assert (keeper.dropped, keeper.now) == (["m1", "m2", "m3"], 110.0)

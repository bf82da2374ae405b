"""Which events are bad ends of leases, and who gets them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind, loss_of
from celery_sqs_heartbeat.signals import lease_lost
from celery_sqs_heartbeat.worker.losses import LostLeaseHandler
from tests.support.waiting import PATIENCE


def event(kind: EventKind, outcome: Outcome | None = None, message: str = "m") -> Event:
    return Event(
        kind=kind,
        at=1000.0,
        queue_url="https://sqs/1/q",
        message_id=message,
        task="work",
        task_id="t",
        receive_count=1,
        slack=-1.0,
        held_for=31.0,
        outcome=outcome,
    )


@pytest.mark.parametrize(
    ("kind", "outcome", "cause"),
    [
        (EventKind.LEASE_EXPIRED, None, "expired"),
        (EventKind.LEASE_LOST, Outcome.LOST, "lost"),
        (EventKind.LEASE_LOST, Outcome.MALFORMED, "lost"),
        pytest.param(EventKind.LEASE_LOST, None, None, id="expired long ago: already reported"),
        (EventKind.LEASE_CAPPED, None, "capped"),
        (EventKind.LEASE_CAPPED, Outcome.CAPPED, "capped"),
        (EventKind.LEASE_CAP_NEAR, None, None),
        (EventKind.LEASE_EXTENDED, Outcome.DONE, None),
        (EventKind.EXTENSION_FAILED, Outcome.THROTTLED, None),
        (EventKind.MESSAGE_LAPSING, None, None),
    ],
)
def test_expired_lost_and_capped_are_distinguished(
    kind: EventKind, outcome: Outcome | None, cause: str | None
) -> None:
    assert loss_of(event(kind, outcome)) == cause


def test_a_handler_that_hangs_delays_the_next_signals_and_nothing_else() -> None:
    heartbeat: Any = SimpleNamespace(requests={})
    handler = LostLeaseHandler(Celery("proj", set_as_current=False), heartbeat)
    go_on, done = threading.Event(), threading.Event()
    told: list[str] = []

    def hang(message_id: str, cause: str, **_: Any) -> None:
        assert go_on.wait(PATIENCE)
        told.append(f"{message_id} {cause}")
        if len(told) == 2:
            done.set()

    lease_lost.connect(hang)
    try:
        # The keeper's thread finishes both.
        handler(event(EventKind.LEASE_EXPIRED, message="a"))
        handler(event(EventKind.LEASE_LOST, Outcome.LOST, message="b"))
        assert told == []
        go_on.set()
        assert done.wait(PATIENCE)
    finally:
        go_on.set()
        lease_lost.disconnect(hang)
        handler.close()
    assert told == ["a expired", "b lost"]

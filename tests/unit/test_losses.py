"""What a user learns of leases that end badly, and of groups that a failure stops."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.signals import lease_capped, lease_lost
from celery_sqs_heartbeat.worker.reports import LostLeaseHandler
from tests.support.waiting import PATIENCE
from tests.unit.observe.happening import FIFO, event

RELEASED, LAPSING = EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING


def loss(kind: EventKind, outcome: Outcome | None = None, message: str = "m") -> Event:
    return event(kind, outcome=outcome, message_id=message, held_for=31.0)


def test_a_handler_that_hangs_delays_the_next_signals_and_nothing_else() -> None:
    heartbeat: Any = SimpleNamespace(requests={})
    handler = LostLeaseHandler(Celery("proj", set_as_current=False), heartbeat)
    go_on, done = threading.Event(), threading.Event()
    got: list[str] = []

    def hang(message_id: str, cause: str, **_: Any) -> None:
        assert go_on.wait(PATIENCE)
        got.append(f"{message_id} {cause}")

    def end(message_id: str, cause: str, **_: Any) -> None:
        got.append(f"{message_id} {cause}")
        done.set()

    lease_lost.connect(hang)
    lease_capped.connect(end)
    try:
        # The keeper's thread finishes all.
        handler(loss(EventKind.LEASE_EXPIRED, message="a"))
        handler(loss(EventKind.LEASE_LOST, Outcome.LOST, "b"))
        handler(loss(EventKind.LEASE_CAPPED, message="c"))
        assert got == []
        go_on.set()
        assert done.wait(PATIENCE)
    finally:
        go_on.set()
        lease_lost.disconnect(hang)
        lease_capped.disconnect(end)
        handler.close()
    assert got == ["a expired", "b lost", "c capped"]


@pytest.mark.parametrize(
    ("kind", "values", "ends"),
    [
        (RELEASED, {}, "becomes visible in 30 s, and the rest of its group waits for it"),
        (LAPSING, {"slack": 5.0}, "becomes visible when its visibility timeout expires, and the "),
        (RELEASED, {"max_receive_count": 4}, "becomes visible in 30 s, and the rest of its group "),
        (RELEASED, {"max_receive_count": 3}, "becomes a dead letter in 30 s, and the rest of its "),
        (RELEASED, {"stops_group": False, "cause": "group stopped"}, None),
        (RELEASED, {"cause": "shutdown"}, None),
        (RELEASED, {"cause": "consumer closed"}, None),
    ],
)
def test_the_log_names_a_group_that_a_failure_stops_with_all_known_facts(
    caplog: pytest.LogCaptureFixture, kind: EventKind, values: dict[str, Any], ends: str | None
) -> None:
    known = {"queue_url": FIFO, "group": "A17", "cause": "failed", "stops_group": True}
    known |= {"receive_count": 3, "visibility_timeout": 30}
    with caplog.at_level(logging.DEBUG):
        log_event(event(kind, **{**known, **values}))
    (record,) = caplog.records
    # The name by which users filter them.
    assert record.name == "celery_sqs_heartbeat"
    line = record.getMessage()
    if ends is None:
        assert (record.levelno, "the rest of its group" in line) == (logging.DEBUG, False)
        return
    assert record.levelno == logging.INFO
    facts = ("group A17 of ", FIFO, "(failed)", "message m,", "task shop.pay[t]", "receive 3")
    assert [fact for fact in (*facts, ends) if fact not in line] == []

"""How many messages a receive asks for on a queue that is kept in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport.caution import CAUTIOUS_SECONDS, Caution
from celery_sqs_heartbeat.transport.receives import Receives

FIFO, STANDARD = "orders.fifo", "orders"
REDRIVE = QueueAttributes(visibility_timeout=30, max_receive_count=5, is_known=True)
PLAIN = QueueAttributes(visibility_timeout=30, is_known=True)
UNKNOWN = QueueAttributes(is_known=False)


@pytest.mark.parametrize(
    ("queue", "attributes", "conf", "room", "is_cautious", "asked"),
    [
        pytest.param(STANDARD, REDRIVE, {}, 1, False, 10, id="a standard queue"),
        pytest.param(FIFO, PLAIN, {}, 91, False, 10, id="nothing counts receives"),
        pytest.param(FIFO, PLAIN, {}, 3, False, 3, id="most would have no room to wait"),
        pytest.param(FIFO, REDRIVE, {}, 91, False, 1, id="what waits would become a dead letter"),
        pytest.param(FIFO, UNKNOWN, {}, 91, False, 1, id="there may be a redrive policy"),
        pytest.param(FIFO, PLAIN, {}, 91, True, 1, id="a task has failed lately"),
        pytest.param(STANDARD, PLAIN, {}, 91, True, 10, id="not kept in order"),
        pytest.param(FIFO, REDRIVE, {"fifo": "parallel"}, 1, False, 10, id="nothing waits"),
        pytest.param(FIFO, REDRIVE, {"fifo_batch": 4}, 91, False, 4, id="set"),
        pytest.param(FIFO, REDRIVE, {"fifo_batch": 4}, 2, False, 2, id="set, with less room"),
        pytest.param(
            FIFO,
            REDRIVE,
            {"queues": {FIFO: {"fifo_batch": 7}}},
            91,
            False,
            7,
            id="set for the queue",
        ),
    ],
)
def test_a_receive_asks_for_no_more_than_may_wait(
    queue: str,
    attributes: QueueAttributes,
    conf: dict[str, Any],
    room: int,
    is_cautious: bool,
    asked: int,
) -> None:
    values = {f"sqs_heartbeat_{name}": value for name, value in conf.items()}
    heartbeat: Any = SimpleNamespace(
        settings=read_settings(values.get),
        caution=SimpleNamespace(is_due=lambda url: is_cautious),
        queues=SimpleNamespace(get=lambda url: attributes),
        groups=SimpleNamespace(most_wanted=room),
        leased=SimpleNamespace(asked_timeout=lambda *_: 30, lease_url=lambda url: url),
        terms=SimpleNamespace(longest_wait=lambda *_: 10),
        polled=SimpleNamespace(asked=lambda *_: None),
    )
    kombu: Any = SimpleNamespace(wait_seconds=10)
    receives = Receives(kombu=kombu, heartbeat=heartbeat)
    assert receives.new_poll(queue, f"https://sqs/1/{queue}", count=10).count == asked
    assert receives.new_poll(queue, f"https://sqs/1/{queue}", count=1).count == 1


def test_caution_ends_a_minute_after_the_last_failure() -> None:
    clock = FakeClock()
    caution = Caution(clock)
    assert not caution.is_due("q")
    caution.note("q")
    clock.advance(CAUTIOUS_SECONDS - 1)
    assert caution.is_due("q")
    assert not caution.is_due("other")
    clock.advance(1)
    assert not caution.is_due("q")

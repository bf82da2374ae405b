"""How many messages a receive requests from a queue that is kept in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner

FIFO, STANDARD = "orders.fifo", "orders"


def receives_of(
    conf: dict[str, Any], *, room: int, open_polls: tuple[Any, ...] = ()
) -> PollPlanner:
    values = {f"sqs_heartbeat_{name}": value for name, value in conf.items()}
    heartbeat: Any = SimpleNamespace(
        settings=read_settings(values.get),
        groups=SimpleNamespace(most_wanted=room),
        leased=SimpleNamespace(asked_timeout=lambda *_: 30, lease_url=lambda url: url),
        terms=SimpleNamespace(longest_wait=lambda *_: 10),
        polled=SimpleNamespace(asked=lambda *_: None),
        open_polls=open_polls,
    )
    kombu: Any = SimpleNamespace(wait_seconds=10)
    return PollPlanner(kombu=kombu, heartbeat=heartbeat)


@pytest.mark.parametrize(
    ("queue", "conf", "room", "asked"),
    [
        pytest.param(STANDARD, {}, 1, 10, id="a standard queue"),
        pytest.param(FIFO, {}, 91, 1, id="the default"),
        pytest.param(FIFO, {"fifo": "parallel"}, 1, 10, id="nothing waits"),
        pytest.param(FIFO, {"fifo_batch": 10}, 91, 10, id="set"),
        pytest.param(
            FIFO, {"fifo_batch": 10}, 3, 3, id="set, and most messages would find no room"
        ),
        pytest.param(FIFO, {"queues": {FIFO: {"fifo_batch": 7}}}, 91, 7, id="set for the queue"),
    ],
)
def test_a_receive_asks_for_no_more_than_may_wait(
    queue: str, conf: dict[str, Any], room: int, asked: int
) -> None:
    receives = receives_of(conf, room=room)
    assert receives.new_poll(queue, f"https://sqs/1/{queue}", count=10).count == asked
    assert receives.new_poll(queue, f"https://sqs/1/{queue}", count=1).count == 1


@pytest.mark.parametrize(
    ("open_polls", "asked"),
    [
        pytest.param([(STANDARD, 10), (FIFO, 1)], 10, id="polls after which nothing waits"),
        pytest.param([("other.fifo", 4)], 7, id="one of its messages is delivered"),
        pytest.param([("other.fifo", 10), (FIFO, 10)], 1, id="at least one"),
    ],
)
def test_a_receive_leaves_room_for_what_open_polls_may_bring(
    open_polls: list[tuple[str, int]], asked: int
) -> None:
    polls = tuple(SimpleNamespace(queue=queue, count=count) for queue, count in open_polls)
    receives = receives_of({"fifo_batch": 10}, room=10, open_polls=polls)
    assert receives.new_poll(FIFO, f"https://sqs/1/{FIFO}", count=10).count == asked

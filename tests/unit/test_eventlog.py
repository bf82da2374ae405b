"""The lines of the log about message groups that stop."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.events import EventKind
from tests.unit.observe.happening import FIFO, event

RELEASED, LAPSING = EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING
ALL = (
    "group A17 of ",
    FIFO,
    "(failed)",
    "message m,",
    "task shop.pay[t]",
    "receive 3",
    "the rest of its group waits for it",
)


def logged(caplog: pytest.LogCaptureFixture, kind: EventKind, **values: Any) -> tuple[int, str]:
    with caplog.at_level(logging.DEBUG):
        log_event(event(kind, **{"queue_url": FIFO, "group": "A17", "cause": "failed", **values}))
    (record,) = caplog.records
    # The name by which users filter them.
    assert record.name == "celery_sqs_heartbeat"
    return record.levelno, record.getMessage()


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        (RELEASED, "becomes visible in 30 s"),
        (LAPSING, "becomes visible when its visibility timeout expires"),
    ],
)
def test_the_log_names_a_group_that_a_failure_stops_with_all_known_facts(
    caplog: pytest.LogCaptureFixture, kind: EventKind, when: str
) -> None:
    level, line = logged(
        caplog, kind, stops_group=True, receive_count=3, visibility_timeout=30, slack=5.0
    )
    assert level == logging.INFO
    for text in (*ALL, when):
        assert text in line, text


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (4, "becomes visible in 0 s, and the rest of its group waits for it"),
        (5, "becomes a dead letter in 0 s, and the rest of its group continues without it"),
    ],
)
def test_after_the_last_receive_the_log_says_that_the_group_continues(
    caplog: pytest.LogCaptureFixture, count: int, says: str
) -> None:
    values = {"stops_group": True, "visibility_timeout": 0, "max_receive_count": 5}
    _, line = logged(caplog, RELEASED, receive_count=count, **values)
    assert line.endswith(says)


@pytest.mark.parametrize(
    "values",
    [
        {"stops_group": False, "cause": "group stopped"},
        {"stops_group": True, "cause": "shutdown"},
        {"stops_group": True, "cause": "consumer closed"},
    ],
)
def test_releases_with_the_group_or_without_a_failure_are_logged_at_debug(
    caplog: pytest.LogCaptureFixture, values: dict[str, Any]
) -> None:
    level, line = logged(caplog, RELEASED, **values)
    assert level == logging.DEBUG
    assert "the rest of its group" not in line

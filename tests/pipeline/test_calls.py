"""Calls and their price."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from tests.pipeline.builders import events_frame, message, workers_frame

pytestmark = pytest.mark.thorough


def _answers(ev: str, batch: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a call with so many entries, one for each entry."""
    return [message(ev, 1, call=1, batch=batch, lat_us=1000, **fields) for _ in range(batch)]


def _received(queue: str, asked: float, *waits: float, **fields: Any) -> list[dict[str, Any]]:
    """Return what one receive brought, each message so long after it was asked for, in seconds.

    The times of lines are rounded separately, so some are off by a microsecond.
    """
    return [
        message(
            "message-received",
            asked + wait,
            **{
                "queue": queue,
                "vt": 30,
                "slack_us": round((30 - wait) * 1e6) + number % 2,
                **fields,
            },
        )
        for number, wait in enumerate(waits)
    ]


_EVENTS = [
    *_answers("lease-extended", 10),
    *_answers("lease-extended", 7),
    *_answers("lease-lost", 3, err="lost"),
    *_answers("lease-capped", 1, err="capped"),
    *_answers("extension-failed", 6, err="throttled"),
    *_answers("message-released", 2),
    *_answers("message-deleted", 7, queue="orders.fifo"),
    *_answers("delete-failed", 3, queue="orders.fifo", err="failed"),
    *_answers("lease-extended", 4, wid="w9"),
    message("lease-lost", 2),
    message("message-lapsing", 2),
    message("permission-denied", 2, call=9, act="extend"),
    *(message("message-received", 3) for _ in range(25)),
    message("task-started", 4),
    *_received("polled", 10, 0.5, 0.5, 0.6),
    *_received("polled", 11, 4.0),
    *_received("polled", 15, 0.1),
    # Of another worker, asked for at the very moment of its first.
    *_received("polled", 10, 0.1, wid="w2"),
    *_received("polled full", 20, *[0.1] * 10),
    *_received("polled full", 21, *[0.2] * 2),
]


@pytest.fixture(scope="module")
def calls(spark: SparkSession) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    workers = workers_frame(
        spark, {"wid": "w1", "versions": {"celery-sqs-heartbeat": "1.2", "celery": "5.6"}}
    )
    rows = calls_of(events_frame(spark, *_EVENTS), workers).collect()
    return {
        (row.queue, row.version, row.kind): (
            row.calls,
            row.entries,
            row.failed,
            row.cost_usd,
            row.saved_usd,
        )
        for row in rows
    }


@pytest.mark.parametrize(
    ("key", "calls_", "entries", "failed", "usd"),
    [
        # Each call counts once.
        (("work", "1.2", "extend"), 5, 27, 10, 0.4e-6),
        # Releases.
        (("work", "1.2", "release"), 1, 2, 0, 0.4e-6),
        # Of FIFO, more expensive.
        (("orders.fifo", "1.2", "delete"), 2, 10, 3, 0.5e-6),
        # Of a worker not known.
        (("work", None, "extend"), 1, 4, 0, 0.4e-6),
    ],
)
def test_calls_are_counted_and_priced(
    calls: dict[tuple[Any, ...], tuple[Any, ...]],
    key: tuple[Any, ...],
    calls_: int,
    entries: int,
    failed: int,
    usd: float,
) -> None:
    assert calls[key][:3] == (calls_, entries, failed)
    assert calls[key][3:] == pytest.approx((calls_ * usd, (entries - calls_) * usd))


def test_receives_that_do_not_say_when_count_as_the_fewest_calls_for_so_many_messages(
    calls: dict[tuple[Any, ...], tuple[Any, ...]],
) -> None:
    assert calls["work", "1.2", "receive"] == (2.5, 25, 0, pytest.approx(1e-6), 0)


@pytest.mark.parametrize(
    ("queue", "version", "calls_", "entries"),
    [("polled", "1.2", 3, 5), ("polled", None, 1, 1), ("polled full", "1.2", 2, 12)],
)
def test_receives_are_distinguished_by_when_they_were_requested(
    calls: dict[tuple[Any, ...], tuple[Any, ...]],
    queue: str,
    version: str | None,
    calls_: int,
    entries: int,
) -> None:
    found = calls[queue, version, "receive"]
    assert found == (calls_, entries, 0, pytest.approx(calls_ * 0.4e-6), 0)


def test_events_without_a_call_count_for_nothing(
    calls: dict[tuple[Any, ...], tuple[Any, ...]],
) -> None:
    assert len([key for key in calls if "polled" not in key[0]]) == 5

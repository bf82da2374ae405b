"""Messages in flight by minute. All queues are counted together, and each shows one rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.in_flight import in_flight_of
from tests.pipeline.builders import DAY, MINUTE, SECOND, attempts_frame, workers_frame

pytestmark = pytest.mark.thorough

_END_OF_DATA = 86_400 + 90

#: Minute of the first day -> peak, mean, quota share, slots, day.
Minutes = Mapping[int, tuple[Any, ...]]


def _stay(queue: str, begin: float, end: float | None, **fields: Any) -> dict[str, Any]:
    last = DAY + round((begin if end is None else end) * SECOND)
    return {
        "queue": queue,
        "received": DAY + round(begin * SECOND),
        "ended": None if end is None else last,
        "last_event": last,
        "ended_as": "deleted" if end is not None else "running",
        "vt": 30,
        "last_vt": 30,
        **fields,
    }


def _abandoned(queue: str, begin: float, extended: float) -> dict[str, Any]:
    last = DAY + round(extended * SECOND)
    return _stay(queue, begin, None, ended_as="abandoned", last_extended=last, last_event=last)


_STAYS = [
    _stay("long", 30, 210),
    _stay("idle", 0, 6),
    _stay("idle", 180, 192),
    *(_stay("one by one", *span) for span in ((1.1, 1.2), (1.3, 1.4), (1.4, 1.5))),
    *(_stay("together", *span) for span in ((1.1, 1.6), (1.2, 1.5), (1.3, 1.4))),
    _abandoned("abandoned", 0, 20),
    _stay("midnight", 86_400 - 30, 86_400 + 30),
    _stay("running", 86_400 + 30, None),
    _stay("end", 86_400 + 60, _END_OF_DATA),
    *(_stay("two workers", 0, 10, wid=wid) for wid in ("w1", "w2")),
    _stay("unknown worker", 0, 10, wid="w3"),
    *(_stay("started again", 60 * at, 60 * at + 10, wid=f"again-{at}") for at in range(4)),
    *(_stay("never idle", 60 * at, 60 * at + 10, wid=f"idle-{at}") for at in range(2)),
    _stay("at night", 0, 10, wid="idle-0"),
    _stay("at night", 86_400 + 60, 86_400 + 70, wid="idle-0"),
    _stay("at night", 86_400 + 20, 86_400 + 30, wid="until morning"),
]


def _life(wid: str, size: int, begin: float, end: float) -> dict[str, Any]:
    seen = {"first_seen": DAY + round(begin * SECOND), "last_seen": DAY + round(end * SECOND)}
    return {"wid": wid, "concurrency": size, **seen}


#: A row for each worker and day.
_LIVES = [
    *(_life(wid, size, 0, 86_400 - 1) for wid, size in (("w1", 4), ("w2", 8))),
    _life("w1", 4, 86_400 + 1, _END_OF_DATA),
    # Each ends before the next begins, except that the last two overlap.
    *(_life(f"again-{at}", 2 + at, 60 * at, 60 * at + 50) for at in range(3)),
    _life("again-3", 5, 165, 200),
    # The first one's lines of the first day end before the second one begins.
    _life("idle-0", 2, 0, 10),
    _life("idle-0", 2, 86_400 + 60, 86_400 + 70),
    _life("idle-1", 3, 60, 70),
    _life("until morning", 16, 86_400 - 30, 86_400 - 20),
    _life("until morning", 16, 86_400 + 20, 86_400 + 30),
]


@pytest.fixture(scope="module")
def minutes(spark: SparkSession) -> dict[str, dict[int, tuple[Any, ...]]]:
    workers = workers_frame(spark, *_LIVES)
    found: dict[str, dict[int, tuple[Any, ...]]] = {}
    for row in in_flight_of(attempts_frame(spark, *_STAYS), workers).collect():
        values = (row.peak, round(row.mean, 9), row.quota_share, row.slots, str(row.dt))
        found.setdefault(row.queue, {})[(row.minute - DAY) // MINUTE] = values
    return found


def _levels(minutes: Mapping[int, tuple[Any, ...]]) -> dict[int, tuple[int, float]]:
    return {minute: values[:2] for minute, values in minutes.items()}


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        # Held over minutes.
        ("long", {0: (1, 0.5), 1: (1, 1.0), 2: (1, 1.0), 3: (1, 0.5)}),
        # No row of a minute with nothing.
        ("idle", {0: (1, 0.1), 3: (1, 0.2)}),
        # One leaves before the next comes.
        ("one by one", {0: (1, 0.005)}),
        # Three at once within a second.
        ("together", {0: (3, 0.015)}),
        # Until the abandoned lease ends.
        ("abandoned", {0: (1, 0.833333333)}),
        # Until the data ends.
        ("running", {1440: (1, 0.5), 1441: (1, 0.5)}),
    ],
)
def test_a_minute_has_its_peak_and_mean(
    minutes: dict[str, Minutes], queue: str, expected: dict[int, tuple[int, float]]
) -> None:
    assert _levels(minutes[queue]) == expected


def test_slots_are_those_of_the_workers_with_messages_of_the_queue(
    minutes: dict[str, Minutes],
) -> None:
    assert minutes["two workers"][0][2:4] == (2 / 120_000, 12)
    assert minutes["unknown worker"][0][3] is None


@pytest.mark.parametrize(
    ("queue", "slots"),
    [
        pytest.param("started again", {4 + 5}, id="the most that lived at any one time"),
        pytest.param("never idle", {2 + 3}, id="a worker lives on until its lines of the next day"),
        pytest.param("at night", {2, 2 + 16}, id="and from midnight on, day by day"),
    ],
)
def test_slots_are_those_of_workers_that_lived_at_the_same_time(
    minutes: dict[str, Minutes], queue: str, slots: set[int]
) -> None:
    assert {values[3] for values in minutes[queue].values()} == slots


def test_a_message_held_over_midnight_is_in_both_days(minutes: dict[str, Minutes]) -> None:
    assert {values[3:] for values in minutes["midnight"].values()} == {
        (4, "2026-03-14"),
        (4, "2026-03-15"),
    }

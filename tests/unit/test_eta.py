"""A message whose task is due later waits at SQS, if that costs it no receive that it needs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from celery_sqs_heartbeat.transport.delivery import seconds_until_eta
from tests.unit.scene import ATTRIBUTES, Scene

New = Callable[..., Scene]
NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
HOUR = 3600
NAMES = itertools.count()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"eta": "2026-07-01T13:00:00+00:00"}, HOUR),
        ({"eta": "2026-07-01T15:00:00+02:00"}, HOUR),
        pytest.param({"eta": "2026-07-01T13:00:00"}, HOUR, id="without a zone: UTC"),
        ({"eta": "2026-07-01T11:00:00.500000+00:00"}, -HOUR + 0.5),
        ({}, None),
        ({"eta": "tomorrow"}, None),
        ({"eta": 1_782_907_200}, None),
        ({"eta": "9999-99-99T00:00:00"}, None),
    ],
)
def test_an_eta_is_read_as_celery_reads_it(headers: Any, seconds: float | None) -> None:
    assert seconds_until_eta(headers, NOON) == seconds


class At(datetime):
    """A clock that stays at noon."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOON


@pytest.fixture(autouse=True)
def _at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.transport.delivery.datetime", At)


def waits(scene: Scene, seconds: float, **received: Any) -> bool:
    """Deliver a message that is due in so many seconds. Return whether it waits at SQS."""
    eta = (NOON + timedelta(seconds=seconds)).isoformat()
    name = f"m{next(NAMES)}"
    scene.deliver(name, eta=eta, **received)
    if name in scene.got:
        assert scene.fate(name) == "held"
        return False
    # A message may arrive a little early, but not late. SQS hides none for longer than 12 hours.
    assert scene.fate(name) == f"released {min(int(seconds), 43_200)} due later"
    assert scene.slots == set()
    return True


@pytest.mark.parametrize(
    ("wait", "hold", "is_parked"),
    [
        pytest.param(60, None, False, id="as late as messages are held"),
        pytest.param(60.5, None, True, id="later"),
        pytest.param(11 * HOUR, 43_200, False, id="up to 12 hours may be held"),
        pytest.param(13 * HOUR, 43_200, True, id="more than 12 hours may not"),
        pytest.param(1.5, 0, True, id="nothing is held"),
        pytest.param(0.9, 0, False, id="except what is too short for a release: it would spin"),
    ],
)
def test_a_message_waits_at_sqs_if_its_task_is_due_later_than_messages_are_held(
    new_scene: New, wait: float, hold: float | None, *, is_parked: bool
) -> None:
    assert waits(new_scene(hold_eta=hold), wait) is is_parked


@pytest.mark.parametrize(
    ("count", "most", "is_parked"),
    [
        pytest.param(1, 1, False, id="it would become a dead letter without a run"),
        pytest.param(1, 2, False, id="no receive would be left for a failure or a dead worker"),
        pytest.param(1, 3, True, id="two receives to run it in"),
        pytest.param(2, 3, False, id="it was parked before"),
        pytest.param(4, 5, False, id="one left"),
        pytest.param(9, None, True, id="no redrive policy"),
    ],
)
def test_a_message_with_few_receives_left_is_held(
    new_scene: New,
    caplog: pytest.LogCaptureFixture,
    count: int,
    most: int | None,
    *,
    is_parked: bool,
) -> None:
    scene = new_scene(attributes=replace(ATTRIBUTES, max_receive_count=most))
    caplog.set_level(logging.INFO)
    assert [waits(scene, HOUR, count=count) for _ in range(3)] == [is_parked] * 3
    (logged,) = [line for line in caplog.messages if "at SQS" in line]
    assert ("wait at SQS until then" if is_parked else "too few for a wait at SQS") in logged


@pytest.mark.parametrize(
    ("queue", "wait", "attributes", "settings", "is_parked"),
    [
        pytest.param("q", HOUR, {"is_known": False}, {}, False, id="its receives are not known"),
        pytest.param("q.fifo", HOUR, {}, {}, False, id="it would block its group"),
        pytest.param("q.fifo", 13 * HOUR, {}, {}, True, id="no lease lasts so long"),
        pytest.param("q", 29, {"max_receive_count": 1}, False, False, id="not extended"),
        pytest.param("q", 31, {"max_receive_count": 1}, False, True, id="it would be visible"),
        pytest.param("q.fifo", 31, {}, False, True, id="it would be visible, in order"),
        pytest.param("q", 75, {}, {"hold_eta": 70}, True, id="its task's setting"),
        pytest.param("q", 65, {}, {"hold_eta": 70}, False, id="its task's setting, sooner"),
    ],
)
def test_the_queue_and_the_task_decide_where_a_message_waits(
    new_scene: New, queue: str, wait: float, attributes: Any, settings: Any, *, is_parked: bool
) -> None:
    known = replace(ATTRIBUTES, **attributes)
    task = {"sqs_heartbeat": settings} if settings != {} else {}
    scene = new_scene(queue=queue, attributes=known, task=task, queues={queue: {"threshold": 10}})
    assert waits(scene, wait, group="g") is is_parked


@pytest.mark.parametrize(
    ("queue", "most", "warnings"),
    [
        pytest.param("q.fifo", None, 0, id="no dead-letter queue"),
        pytest.param("q.fifo", 3, 0, id="just enough"),
        pytest.param("q.fifo", 2, 1, id="one too few"),
        pytest.param("q", 2, 0, id="sent again"),
    ],
)
def test_a_fifo_queue_that_allows_too_few_receives_for_a_distant_eta_gets_one_warning(
    new_scene: New, caplog: pytest.LogCaptureFixture, queue: str, most: int | None, warnings: int
) -> None:
    scene = new_scene(queue=queue, attributes=replace(ATTRIBUTES, max_receive_count=most))
    caplog.set_level(logging.INFO)
    for number in range(2):
        assert waits(scene, 30 * HOUR, group=f"g{number}")
    assert sum("will be at receive 3" in line for line in caplog.messages) == 2
    assert sum("needs 3 receives" in line for line in caplog.messages) == warnings

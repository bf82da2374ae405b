"""How far away a task's ETA is, and where its message waits until then."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.policy import receives_until
from celery_sqs_heartbeat.settings import Settings, read_settings
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import EtaParking, seconds_until_eta
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues
from tests.support.leases import lease_of

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
HOUR = 3600


@pytest.mark.parametrize(
    ("eta", "seconds"),
    [
        ("2026-07-01T13:00:00+00:00", HOUR),
        ("2026-07-01T13:00:00Z", HOUR),
        ("2026-07-01T15:00:00+02:00", HOUR),
        pytest.param("2026-07-01T13:00:00", HOUR, id="without a zone: UTC"),
        ("2026-07-01T11:00:00.500000+00:00", -HOUR + 0.5),
        (None, None),
        ("tomorrow", None),
        (1_782_907_200, None),
        ("9999-99-99T00:00:00", None),
    ],
)
def test_an_eta_is_read_as_celery_reads_it(eta: Any, seconds: float | None) -> None:
    assert seconds_until_eta({"eta": eta}, NOON) == seconds


def test_a_message_without_an_eta_has_none() -> None:
    assert seconds_until_eta({}, NOON) is None


@pytest.mark.parametrize(
    ("hours", "lasts_hours", "receives"),
    [
        pytest.param(13, 12, 1, id="one hour too late"),
        pytest.param(24, 12, 1, id="twice as late"),
        pytest.param(24.1, 12, 2, id="more than twice as late"),
        pytest.param(100, 12, 8, id="four days"),
        pytest.param(3, 1, 1, id="a short max_lease: SQS keeps it to the end"),
    ],
)
def test_a_distant_eta_takes_one_receive_per_twelve_hours(
    hours: float, lasts_hours: float, receives: int
) -> None:
    assert receives_until(hours * HOUR, lasts=lasts_hours * HOUR) == receives


def parking(most: int | None = None, *, is_known: bool = True) -> EtaParking:
    """Return the parking rules for a queue that allows so many receives."""
    attributes: Any = SimpleNamespace(max_receive_count=most, is_known=is_known)
    queues: Any = SimpleNamespace(get=lambda url: attributes)
    heartbeat = Heartbeat(keeper=Mock(), settings=Settings(), queues=queues, clients=Mock())
    return EtaParking(heartbeat)


def lease(queue: str = "https://q", *, receive_count: int = 1, **terms: Any) -> Lease:
    """Return a lease whose message was received at 0 and is hidden until 30 s later."""
    held = lease_of(
        "a", expires_at=30, terms=LeaseTerms(visibility_timeout=30, threshold=10, **terms)
    )
    held.queue_url, held.receive_count = queue, receive_count
    return held


@pytest.mark.parametrize(
    ("queue", "most", "warnings"),
    [
        pytest.param("https://q.fifo", None, 0, id="no dead-letter queue"),
        pytest.param("https://q.fifo", 3, 0, id="just enough"),
        pytest.param("https://q.fifo", 2, 1, id="one too few"),
        pytest.param("https://q", 2, 0, id="sent again"),
    ],
)
def test_a_fifo_queue_that_allows_too_few_receives_for_a_distant_eta_gets_one_warning(
    queue: str, most: int | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    etas = parking(most)
    for _ in range(2):
        assert etas.is_parked(lease(queue), 30 * HOUR, hold=60, now=0.0)
    levels = [record.levelno for record in caplog.records]
    assert levels.count(logging.WARNING) == warnings
    assert sum("will be at receive 3" in message for message in caplog.messages) == 2
    assert sum("needs 3 receives" in message for message in caplog.messages) == warnings


def test_invented_task_names_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    etas = parking(2)
    for number in range(3):
        held = lease("https://q.fifo")
        held.task = f"made.up.{number}"
        assert etas.is_parked(held, 30 * HOUR, hold=60, now=0.0)
    (warning,) = caplog.messages
    assert "task made.up.0 is due in" in warning


@pytest.mark.parametrize(
    ("wait", "hold", "is_parked"),
    [
        pytest.param(60, 60, False, id="as late as messages are held"),
        pytest.param(60.5, 60, True, id="later"),
        pytest.param(11 * HOUR, 43_200, False, id="up to 12 hours may be held"),
        pytest.param(13 * HOUR, 43_200, True, id="more than 12 hours may not"),
        pytest.param(1.5, 0, True, id="nothing is held"),
        pytest.param(0.9, 0, False, id="except what is too short for a release: it would spin"),
        pytest.param(-5, 0, False, id="overdue"),
    ],
)
def test_a_message_waits_at_sqs_if_its_task_is_due_later_than_messages_are_held(
    wait: float, hold: float, is_parked: bool
) -> None:
    assert parking().is_parked(lease(), wait, hold=hold, now=0.0) is is_parked


@pytest.mark.parametrize(
    ("receive_count", "most", "is_parked"),
    [
        pytest.param(1, 1, False, id="it would become a dead letter without a run"),
        pytest.param(1, 2, False, id="no receive would be left for a failure or a dead worker"),
        pytest.param(1, 3, True, id="two receives to run it in"),
        pytest.param(2, 3, False, id="it was parked before"),
        pytest.param(3, 5, True, id="two left"),
        pytest.param(4, 5, False, id="one left"),
        pytest.param(9, None, True, id="no redrive policy"),
    ],
)
def test_a_message_with_few_receives_left_is_held(
    receive_count: int, most: int | None, is_parked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    etas, held = parking(most), lease(receive_count=receive_count)
    assert [etas.is_parked(held, HOUR, hold=60, now=0.0) for _ in range(3)] == [is_parked] * 3
    (logged,) = caplog.messages
    assert ("wait at SQS until then" if is_parked else "too few for a wait at SQS") in logged


def test_a_message_of_a_queue_with_unknown_receive_limits_is_held() -> None:
    assert not parking(is_known=False).is_parked(lease(), HOUR, hold=60, now=0.0)


@pytest.mark.parametrize(
    ("wait", "is_parked"), [(HOUR, False), pytest.param(13 * HOUR, True, id="no lease lasts")]
)
def test_a_message_of_a_fifo_queue_is_held_as_long_as_possible(
    wait: float, is_parked: bool
) -> None:
    held = lease("https://q.fifo")
    assert parking().is_parked(held, wait, hold=60, now=0.0) is is_parked


@pytest.mark.parametrize("queue", ["https://q", "https://q.fifo"])
@pytest.mark.parametrize(("wait", "is_parked"), [(29, False), (31, True)])
def test_a_message_that_is_not_extended_is_parked_because_it_would_become_visible_before_it_is_due(
    queue: str, wait: float, is_parked: bool
) -> None:
    held = lease(queue, extend=False)
    assert parking(1).is_parked(held, wait, hold=60, now=0.0) is is_parked


@pytest.mark.parametrize(
    ("settings", "task", "hold"),
    [
        pytest.param({}, None, 60, id="a minute"),
        pytest.param({"hold_eta": 90}, "t", 90, id="the setting"),
        pytest.param({"hold_eta": 0}, "t", 0, id="nothing is held"),
        pytest.param(
            {"hold_eta": 90, "queues": {"q": {"hold_eta": 80}}},
            "t",
            80,
            id="the setting of a queue",
        ),
        pytest.param({"tasks": {"t": {"hold_eta": 70}}}, "t", 70, id="the setting of a task"),
        pytest.param({"tasks": {"t": {"hold_eta": 70}}}, "u", 60, id="the setting of another task"),
    ],
)
def test_the_most_specific_setting_decides_how_long_a_message_is_held(
    settings: dict[str, Any], task: str | None, hold: float
) -> None:
    conf = {f"sqs_heartbeat_{name}": value for name, value in settings.items()}
    read = read_settings(conf.get, tasks=conf.pop("sqs_heartbeat_tasks", {}))
    held = lease()
    held.task = task
    leased = LeasedQueues(read, Mock(), Mock(), Mock())
    leased.names["https://q"] = "q"
    assert leased.hold_eta(held) == hold

"""How far away a message's ETA is, and how many receives that takes."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.policy import receives_until
from celery_sqs_heartbeat.transport.eta import seconds_until_eta
from celery_sqs_heartbeat.transport.far_etas import is_too_far
from celery_sqs_heartbeat.transport.once import Once
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
        pytest.param(13, 12, 1, id="one hour too far"),
        pytest.param(24, 12, 1, id="twice as far"),
        pytest.param(24.1, 12, 2, id="more than twice"),
        pytest.param(100, 12, 8, id="four days"),
        pytest.param(3, 1, 1, id="a short max_lease: SQS keeps it to the end"),
    ],
)
def test_a_far_eta_takes_a_receive_for_each_twelve_hours(
    hours: float, lasts_hours: float, receives: int
) -> None:
    assert receives_until(hours * HOUR, lasts=lasts_hours * HOUR) == receives


def queues(most: int | None) -> Any:
    """Return what is known of the queue that allows so many receives."""
    return {"https://q": SimpleNamespace(max_receive_count=most)}


@pytest.mark.parametrize(
    ("most", "warnings"),
    [
        pytest.param(None, 0, id="no dead-letter queue"),
        pytest.param(3, 0, id="just enough"),
        pytest.param(2, 1, id="one too few"),
    ],
)
def test_a_queue_that_allows_too_few_receives_for_a_far_eta_is_warned_of_once(
    most: int | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    once = Once()
    for handle in ("a", "b"):
        assert is_too_far(lease_of(handle), 30 * HOUR, now=0.0, queues=queues(most), once=once)
    levels = [record.levelno for record in caplog.records]
    assert levels.count(logging.WARNING) == warnings
    assert sum("will be at receive 3" in message for message in caplog.messages) == 2
    assert sum("takes 3 receives" in message for message in caplog.messages) == warnings


def test_an_eta_within_the_lease_is_not_too_far() -> None:
    assert not is_too_far(lease_of("a"), 11 * HOUR, now=0.0, queues=queues(1), once=Once())

"""How long the final flush may take once the last polls are read."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.worker.ending import flush_time_left

#: The default of Kubernetes' terminationGracePeriodSeconds.
GRACE_PERIOD = 30


@pytest.mark.parametrize(
    ("flush_timeout", "waited", "left"),
    [
        (15, 0, 15),
        (15, 10, 15),
        (15, 12, 13),
        (15, 21.5, 5),
        (60, 21.5, 48.5),
        (2, 21.5, 2),
    ],
)
def test_a_long_wait_for_the_last_polls_shortens_the_flush(
    flush_timeout: float, waited: float, left: float
) -> None:
    assert flush_time_left(flush_timeout, waited) == left


@pytest.mark.parametrize("waited", [0, 10, 21.5])
def test_the_default_leaves_room_in_the_grace_period_of_kubernetes(waited: float) -> None:
    assert waited + flush_time_left(FLUSH_SECONDS, waited) < GRACE_PERIOD

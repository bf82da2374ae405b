"""How long the final flush may take after the last polls were read."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.worker.ending import flush_time_left


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

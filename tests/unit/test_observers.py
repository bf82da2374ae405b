"""Several observers of one keeper."""

from __future__ import annotations

from typing import Any

import pytest

from celery_sqs_heartbeat.observe.watched import Observers
from tests.unit.book_harness import BookHarness


def test_the_error_of_one_keeps_no_other_from_an_event(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def fail(event: Any) -> None:
        raise ValueError("on purpose")

    observers = Observers(fail, told.append)
    booking = BookHarness()
    booking.receive("a")
    booking.plan()
    observers(booking.events[0])
    assert told == [booking.events[0]]
    assert "an observer failed on message-received" in caplog.text

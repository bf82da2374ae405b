"""The terms of leases while the visibility timeouts of their queues change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, QueueDirectory
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues

URL = "https://sqs/1/q"
OTHER = "https://other/1/q"


class Terms(LeasedQueues):
    """The terms of a worker whose queues change. `own` is None if their timeout is unknown."""

    def __init__(self, own: int | None, leases: int = 8, **settings: Any) -> None:
        self.own = {URL: own, OTHER: own}
        self.clock = FakeClock()
        self._jobs: list[Callable[[], None]] = []
        given = {f"sqs_heartbeat_{name}": value for name, value in settings.items()}
        tasks = given.pop("sqs_heartbeat_tasks", None)
        queues = QueueDirectory(self._read, self._jobs.append, self.clock)
        super().__init__(read_settings(given.get, tasks=tasks), queues, Mock(), Mock(), leases)

    def _read(self, queue_url: str) -> QueueAttributes:
        if (own := self.own[queue_url]) is None:
            raise PermissionError("sqs:GetQueueAttributes")
        return QueueAttributes(own)

    def change(self, own: int | None) -> bool:
        """Change the queue's timeout; return whether that is new once it is read again."""
        self.own[URL] = own
        self.clock.advance(REFRESH_SECONDS)
        self.follow("q", URL)
        while self._jobs:
            self._jobs.pop()()
        return self.follow("q", URL)

    def in_force(self, task: str | None = None) -> tuple[int, float, float]:
        terms = self.of("q", self.asked("q", URL), task)
        return terms.visibility_timeout, terms.threshold, terms.max_lease


@pytest.mark.parametrize(
    ("settings", "own", "asked"),
    [
        pytest.param({}, 45, 45, id="the queue's timeout"),
        pytest.param({"visibility_timeout": 60}, 45, 60, id="the setting"),
        pytest.param(
            {"visibility_timeout": 60}, None, 60, id="the setting, not the assumed timeout"
        ),
        pytest.param({}, None, None, id="nothing instead of the queue's own timeout"),
    ],
)
def test_each_receive_requests_the_timeout_with_which_its_leases_begin(
    settings: dict[str, Any], own: int | None, asked: int | None
) -> None:
    terms = Terms(own, **settings)
    terms.admit("q", URL)
    assert terms.asked("q", URL) == asked


def test_a_lease_keeps_the_timeout_of_its_receive_although_the_queue_has_changed() -> None:
    terms = Terms(60)
    terms.admit("q", URL)
    asked = terms.asked("q", URL)
    assert terms.change(6)
    assert terms.of("q", asked) == LeaseTerms.of(60)
    assert terms.of("q", terms.asked("q", URL)) == LeaseTerms.of(6)


@pytest.mark.parametrize(
    ("settings", "own", "in_force", "said"),
    [
        pytest.param({}, 15, (15, 5, 43_195), None, id="defaults fit"),
        pytest.param({"threshold": 10}, 15, (15, 10, 43_195), None, id="smaller settings fit"),
        pytest.param({"threshold": 20}, 15, (15, 5, 43_195), "threshold=20", id="threshold"),
        pytest.param({"threshold": 15}, 15, (15, 5, 43_195), "threshold=15", id="equal to it"),
        pytest.param(
            {"threshold": 20, "leases": 8_000},
            21,
            (21, 7, 43_195),
            "800 calls a second",
            id="more calls than a worker makes",
        ),
        pytest.param({"max_lease": 90}, 120, (120, 40, 120), "max_lease=90", id="max_lease"),
        pytest.param({"interval": 5}, 9, (9, 3, 43_195), "interval=5", id="interval"),
        pytest.param({}, 0, (1, 1 / 3, 43_195), "visibility_timeout=0", id="no timeout at all"),
        pytest.param({"visibility_timeout": 60}, 5, (60, 20, 43_195), None, id="not the queue's"),
    ],
)
def test_settings_that_do_not_fit_a_changed_timeout_are_clamped_and_reported_once(
    settings: dict[str, Any],
    own: int,
    in_force: tuple[int, float, float],
    said: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    terms = Terms(60, **settings)
    terms.admit("q", URL)
    for _ in range(3):
        terms.change(own)
    assert terms.in_force() == pytest.approx(in_force)
    # A reconnect does that, or a failover to a queue that has also changed.
    terms.own[OTHER] = own
    terms.admit("q", URL)
    terms.admit("q", OTHER)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    if said is None:
        assert warnings == []
        return
    (warning,) = warnings
    assert f"queue q is {own} s now, and was 60 s" in warning
    assert said in warning
    assert "Change the setting, or the queue's visibility timeout" in warning


def test_a_tasks_threshold_is_clamped_too(caplog: pytest.LogCaptureFixture) -> None:
    terms = Terms(60, tasks={"t": {"threshold": 30}})
    terms.admit("q", URL)
    terms.change(15)
    assert terms.in_force("t") == (15, 5, 43_195)
    assert "task 't' on queue 'q': threshold=30" in caplog.text


def test_a_change_is_reported_once_in_each_direction(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    terms = Terms(60, threshold=20)
    terms.admit("q", URL)
    changes = [terms.change(own) for own in (60, 15, 15, 60, 60)]
    assert changes == [False, True, False, True, False]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "is 60 s now, and was 15 s" in caplog.records[-1].getMessage()


def test_a_worker_starts_on_no_queue_that_the_settings_do_not_fit() -> None:
    with pytest.raises(ConfigurationError, match="threshold=20"):
        Terms(15, threshold=20).admit("q", URL)


def test_a_queue_that_is_added_to_a_running_worker_gets_terms_that_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    terms = Terms(15, threshold=20)
    terms.has_begun = True
    assert terms.admit("q", URL).threshold == 5
    assert terms.admit("q", URL).threshold == 5
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "queue q was added, which the settings do not fit: queue 'q': threshold=20 must be " in (
        record.getMessage()
    )


def test_attributes_that_can_no_longer_be_read_stay_unchanged() -> None:
    terms = Terms(60)
    terms.admit("q", URL)
    assert not terms.change(None)
    assert terms.asked("q", URL) == 60


def test_settings_are_not_checked_against_a_timeout_that_was_not_read() -> None:
    terms = Terms(None, threshold=52)
    # 30 s are assumed, and the threshold would not fit them.
    assert terms.admit("q", URL).threshold < 30
    assert terms.change(60)
    assert terms.in_force() == (60, 52, 43195)


def test_a_timeout_that_is_set_is_checked_regardless_of_the_queue() -> None:
    with pytest.raises(ConfigurationError, match="threshold=52"):
        Terms(None, threshold=52, visibility_timeout=40).admit("q", URL)

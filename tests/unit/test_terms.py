"""The numbers of leases: the rules of the policy, and terms while a queue's timeout changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, QueueDirectory
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport.leased_queues import LeasedQueues


def wait(longest: int, timeout: float, threshold: float) -> int:
    return policy.longest_wait(longest, visibility_timeout=timeout, threshold=threshold)


def lease(expires_at: float, max_lease: float = 43_195, held_since: float = 0.0) -> Lease:
    terms = LeaseTerms(visibility_timeout=30, threshold=10, max_lease=max_lease)
    held = Lease(queue_url="q", message_id="m", terms=terms, held_since=held_since)
    held.expires_at = held.hidden_until = expires_at
    return held


def next_timeout(now: float, expires_at: float, max_lease: float = 43_195) -> int:
    return policy.next_timeout(lease(expires_at, max_lease), now)


def timeout_after_an_older_receive(now: float) -> int:
    return policy.next_timeout(lease(43_180.0, 10**9, held_since=20.0), now)


def retry(attempts: int, margin: float, throttled: bool, jitter: float) -> float:
    return policy.retry_delay(attempts, margin=margin, throttled=throttled, jitter=jitter)


def probe(refusals: int, jitter: float = 1.0) -> float:
    return policy.refused_delay(refusals, longest=policy.MAX_PROBE_SECONDS, jitter=jitter)


def refused_delete(refusals: int, jitter: float = 1.0) -> float:
    return policy.refused_delay(refusals, longest=policy.MAX_REFUSED_DELETE_SECONDS, jitter=jitter)


def release(delay: float, now: float) -> int:
    return policy.cut_release_delay(lease(1e6), delay, now)


def threshold(given: float | None, timeout: int) -> float:
    return LeaseTerms.of(timeout, given).with_room().threshold


def hold_eta(timeout: float, threshold: float) -> float:
    return policy.default_hold_eta(visibility_timeout=timeout, threshold=threshold)


def receives(hours: float, lasts_hours: float) -> int:
    return policy.receives_until(hours * 3_600, lasts=lasts_hours * 3_600)


def half_over(now: float) -> bool:
    return policy.is_half_over(lease(1e6, 50), now)


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        pytest.param(wait, (10, 30, 10), 10, id="a poll waits for so long"),
        pytest.param(wait, (20, 30, 10), 20, id="if the threshold is left at its end"),
        pytest.param(wait, (20, 30, 10.5), 19, id="in whole seconds"),
        pytest.param(wait, (20, 1, 0.3), 0, id="not at all with the shortest timeout"),
        pytest.param(wait, (20, 0, 10), 20, id="without a limit where the timeout is unknown"),
        pytest.param(next_timeout, (20.0, 30.0), 30, id="an extension is for the whole timeout"),
        pytest.param(next_timeout, (43_175.0, 43_185.0, 10**9), 25, id="or the rest of 12 hours"),
        pytest.param(next_timeout, (43_175.5, 43_185.0, 10**9), 24, id="rounded down"),
        pytest.param(next_timeout, (43_190.0, 43_195.0), 0, id="or none, with nothing to gain"),
        pytest.param(next_timeout, (43_200.0, 43_195.0), 0, id="or after the 12 hours"),
        pytest.param(next_timeout, (90.0, 95.0, 100), 10, id="or the rest of max_lease"),
        pytest.param(next_timeout, (10.0, 45.0), 0, id="it never shortens a lease"),
        pytest.param(next_timeout, (15.0, 45.0), 0, id="nor asks for what there is already"),
        # Of two polls the later one may receive the message first.
        pytest.param(timeout_after_an_older_receive, (43_175.0,), 25, id="from the latest receive"),
        pytest.param(retry, (1, 10.0, False, 1.0), 0.05, id="the first retry comes soon"),
        pytest.param(retry, (2, 10.0, False, 1.0), 0.1, id="then the pause doubles"),
        pytest.param(retry, (1, 10.0, False, 0.0), 0.025, id="jitter takes up to half of it"),
        pytest.param(retry, (1, 10.0, True, 1.0), 0.2, id="a throttle slows it down"),
        pytest.param(retry, (9, 10.0, False, 1.0), 1.25, id="an eighth of the margin at most"),
        pytest.param(retry, (9, 0.08, False, 1.0), 0.02, id="but never a hot loop"),
        pytest.param(retry, (9, -1.0, False, 1.0), 5.0, id="after the expiry it does not hurry"),
        pytest.param(retry, (500, 1e6, False, 1.0), 5.0, id="five seconds at most"),
        pytest.param(probe, (1,), 0.2, id="a queue that refuses is probed soon"),
        pytest.param(probe, (3,), 0.8, id="then more rarely"),
        pytest.param(probe, (99,), 10.0, id="every ten seconds at last"),
        pytest.param(probe, (99, 0.0), 5.0, id="less up to half of it"),
        pytest.param(refused_delete, (2,), 0.4, id="a refused delete is tried like that"),
        pytest.param(refused_delete, (99,), 30.0, id="every half minute at last"),
        pytest.param(policy.call_patience, (0.5,), 0.6, id="a call may take 0.6 s"),
        pytest.param(policy.call_patience, (30,), 10, id="or a third of the threshold"),
        pytest.param(policy.call_patience, (600,), 20, id="but not more than 20 s"),
        pytest.param(release, (0.2, 5.0), 1, id="a release delay is whole"),
        pytest.param(release, (43_200, 43_100.0), 100, id="and fits the 12 hours"),
        pytest.param(release, (-3, 5.0), 0, id="and is not negative"),
        pytest.param(threshold, (None, 30), 10, id="the threshold is a third"),
        pytest.param(threshold, (29.9, 30), 29.9, id="or what is given"),
        pytest.param(threshold, (30, 30), 10, id="unless each extension would be due at once"),
        pytest.param(hold_eta, (30, 10), 60, id="an ETA of a minute is held"),
        pytest.param(hold_eta, (90, 30), 120, id="or as long as two extensions last"),
        pytest.param(hold_eta, (43_200, 14_400), 43_200, id="and 12 hours at most"),
        pytest.param(receives, (13, 12), 1, id="a task that is due one hour too late"),
        pytest.param(receives, (24, 12), 1, id="or twice as late takes one receive"),
        pytest.param(receives, (24.1, 12), 2, id="or more than twice as late"),
        pytest.param(receives, (100, 12), 8, id="or in four days"),
        pytest.param(receives, (3, 1), 1, id="a short max_lease: SQS keeps it to the end"),
        pytest.param(half_over, (25.0,), False, id="at half of its time a lease is not half over"),
        pytest.param(half_over, (25.1,), True, id="but after it"),
    ],
)
def test_a_rule_of_the_policy(
    rule: Callable[..., float], given: tuple[float, ...], expected: float
) -> None:
    assert rule(*given) == pytest.approx(expected)


def test_a_margin_of_a_second_allows_many_retries() -> None:
    margin, tries = 1.3, 0
    while margin > 0.05:
        tries += 1
        margin -= retry(tries, margin, False, 1.0)
    assert tries >= 15


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


def test_settings_are_not_checked_against_a_timeout_that_was_not_read() -> None:
    terms = Terms(None, threshold=52)
    # 30 s are assumed, and the threshold would not fit them.
    assert terms.admit("q", URL).threshold < 30
    assert terms.change(60)
    assert terms.in_force() == (60, 52, 43195)


def test_a_timeout_that_is_set_is_checked_regardless_of_the_queue() -> None:
    with pytest.raises(ConfigurationError, match="threshold=52"):
        Terms(None, threshold=52, visibility_timeout=40).admit("q", URL)

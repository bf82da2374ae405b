"""The rules of the policy, as tables."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms


def lease(*, received_at: float = 0.0, expires_at: float, max_lease: float = 43_195) -> Lease:
    terms = LeaseTerms(visibility_timeout=30, threshold=10, max_lease=max_lease)
    return Lease(
        queue_url="q",
        message_id="m",
        terms=terms,
        held_since=received_at,
        received_at=received_at,
        expires_at=expires_at,
        hidden_until=expires_at,
    )


@pytest.mark.parametrize(
    ("arrived_at", "visibility_timeout", "expected"),
    [
        pytest.param(0.1, 30, 30.0, id="a fast answer counts from when the poll was sent"),
        pytest.param(19.0, 30, 30.0, id="a long poll does, too"),
        pytest.param(19.0, 0, 29.0, id="with an unknown timeout the threshold counts"),
    ],
)
def test_the_first_expiry_is_the_earliest_possible(
    arrived_at: float, visibility_timeout: int, expected: float
) -> None:
    expiry = policy.first_expiry(
        sent_at=0.0,
        arrived_at=arrived_at,
        visibility_timeout=visibility_timeout,
        threshold=10,
    )
    assert expiry == expected


@pytest.mark.parametrize(
    ("wait", "visibility_timeout", "threshold", "expected"),
    [
        pytest.param(10, 30, 10, 10, id="the requested wait"),
        pytest.param(20, 30, 10, 20, id="the longest wait that leaves the threshold"),
        pytest.param(20, 30, 10.5, 19, id="whole seconds"),
        pytest.param(20, 6, 2, 4, id="less for a short timeout"),
        pytest.param(20, 1, 0.3, 0, id="none for the shortest"),
        pytest.param(20, 0, 10, 20, id="no limit where the timeout is unknown"),
    ],
)
def test_a_receive_waits_only_so_long_that_the_threshold_remains_at_its_end(
    wait: int, visibility_timeout: int, threshold: float, expected: int
) -> None:
    longest = policy.longest_wait(wait, visibility_timeout=visibility_timeout, threshold=threshold)
    assert longest == expected


@pytest.mark.parametrize(
    ("now", "expires_at", "max_lease", "expected"),
    [
        pytest.param(20.0, 30.0, 43_195, 30, id="the full timeout"),
        pytest.param(43_175.0, 43_185.0, 10**9, 25, id="cut to the rest of the 12 hours"),
        pytest.param(43_175.5, 43_185.0, 10**9, 24, id="and rounded down, never past them"),
        pytest.param(43_190.0, 43_195.0, 43_195, 0, id="nothing to gain"),
        pytest.param(43_200.0, 43_195.0, 43_195, 0, id="the 12 hours have passed"),
        pytest.param(90.0, 95.0, 100, 10, id="cut to max_lease"),
        pytest.param(10.0, 45.0, 43_195, 0, id="it never shortens"),
        pytest.param(15.0, 45.0, 43_195, 0, id="nor requests what it already has"),
    ],
)
def test_next_timeout(now: float, expires_at: float, max_lease: float, expected: int) -> None:
    assert policy.next_timeout(lease(expires_at=expires_at, max_lease=max_lease), now) == expected


def test_the_12_hours_count_from_the_latest_receive_even_if_sent_before_the_first() -> None:
    held = lease(received_at=20.0, expires_at=43_180.0, max_lease=10**9)
    held.received_at = 0.0
    assert policy.lease_end(held) == 43_200.0
    assert policy.next_timeout(held, 43_175.0) == 25


@pytest.mark.parametrize(
    ("attempts", "margin", "throttled", "jitter", "expected"),
    [
        pytest.param(1, 10.0, False, 1.0, 0.05, id="the first retry comes soon"),
        pytest.param(2, 10.0, False, 1.0, 0.1, id="then it doubles"),
        pytest.param(1, 10.0, False, 0.0, 0.025, id="jitter takes up to half of it"),
        pytest.param(1, 10.0, True, 1.0, 0.2, id="a throttle slows it down"),
        pytest.param(9, 10.0, False, 1.0, 1.25, id="at most an eighth of the margin"),
        pytest.param(9, 0.08, False, 1.0, 0.02, id="but never a hot loop"),
        pytest.param(9, -1.0, False, 1.0, 5.0, id="after the expiry it does not hurry"),
        pytest.param(500, 1e6, False, 1.0, 5.0, id="five seconds at most"),
    ],
)
def test_retry_delay(
    attempts: int, margin: float, throttled: bool, jitter: float, expected: float
) -> None:
    assert policy.retry_delay(
        attempts, margin=margin, throttled=throttled, jitter=jitter
    ) == pytest.approx(expected)


def test_a_margin_of_a_second_allows_many_retries() -> None:
    margin, tries = 1.3, 0
    while margin > 0.05:
        tries += 1
        margin -= policy.retry_delay(tries, margin=margin, throttled=False, jitter=1.0)
    assert tries >= 15


@pytest.mark.parametrize(
    ("delay", "now", "expected"),
    [(0, 5.0, 0), (0.2, 5.0, 1), (900, 5.0, 900), (43_200, 43_100.0, 100), (-3, 5.0, 0)],
)
def test_a_release_delay_is_whole_and_fits_the_12_hours(
    delay: float, now: float, expected: int
) -> None:
    assert policy.cut_release_delay(lease(expires_at=1e6), delay, now) == expected


@pytest.mark.parametrize(
    ("timeout", "threshold", "expected"),
    [
        (30, 10, 10),
        (30, 29.9, 29.9),
        pytest.param(30, 30, 10, id="due at once after the confirmation"),
        pytest.param(15, 20, 5, id="due before it is confirmed"),
    ],
)
def test_a_threshold_leaves_room_for_the_time_between_two_extensions(
    timeout: int, threshold: float, expected: float
) -> None:
    terms = LeaseTerms(visibility_timeout=timeout, threshold=threshold).with_room()
    assert terms.threshold == expected


@pytest.mark.parametrize(
    ("visibility_timeout", "threshold", "expected"),
    [
        pytest.param(30, 10, 60, id="a minute at least"),
        pytest.param(90, 30, 120, id="two extensions"),
        pytest.param(1_800, 600, 2_400, id="kombu's timeout"),
        pytest.param(43_200, 14_400, 43_200, id="SQS's 12 hours at most"),
    ],
)
def test_an_eta_is_held_for_as_long_as_that_is_cheaper_than_parking(
    visibility_timeout: int, threshold: float, expected: float
) -> None:
    hold = policy.default_hold_eta(visibility_timeout=visibility_timeout, threshold=threshold)
    assert hold == expected

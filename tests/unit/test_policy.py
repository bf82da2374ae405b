"""The numbers of the policy: how long to hide, to wait, to pause and to hold, in seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms


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

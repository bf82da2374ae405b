"""The rules of a sample that keeps messages invisible by a timer.

Source: Alibaba Cloud, Simple Message Queue (SMQ, formerly MNS), "Manage the visibility
timeout of a message" (help/en/mns/use-cases/message-visibility-timeout), whose C# sample is
only available as a download. Its settings: `QueueMessageVisibilityTimeout` is our
`visibility_timeout`, `MessageMinimalLife` our `threshold`, `TimerInterval` our `interval`,
`MessageTimeout` our `max_lease`.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.settings import PREFIX, read_settings
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


@pytest.mark.parametrize("life", [1, 5, 9])
def test_a_message_registered_with_less_than_the_minimal_life_is_extended_at_once(
    life: int,
) -> None:
    """Received with a timeout that is shorter than the task."""
    bench = ConsumerHarness(TERMS)
    bench.send("a")
    bench.receive(hidden_for=life)
    bench.run(until=19)
    assert bench.asked("extend", "a") == [0.0]
    assert bench.message("a").visible_at == 30.0


@pytest.mark.parametrize("life", [1, 5, 9])
def test_a_message_whose_receive_took_most_of_its_life_is_extended_at_once(life: float) -> None:
    """Received late in a long poll, which was sent long ago."""
    bench = ConsumerHarness(TERMS)
    bench.send("a")
    bench.receive(asked_ago=TERMS.visibility_timeout - life)
    bench.run(until=19)
    assert bench.asked("extend", "a") == [0.0]
    assert bench.lapses == []


def test_a_message_registered_with_more_is_extended_when_the_minimal_life_is_left() -> None:
    bench = ConsumerHarness(TERMS)
    bench.send("a")
    bench.receive(hidden_for=12)
    bench.run(until=20)
    assert bench.asked("extend", "a") == [2.0]


def test_the_message_timeout_ends_the_extending() -> None:
    """It is let expire and becomes visible. The last extension is shortened to fit."""
    terms = LeaseTerms(visibility_timeout=30, threshold=10, max_lease=100)
    bench = ConsumerHarness(terms)
    bench.process("hung", takes=1000)
    bench.run(until=99)
    assert bench.steal() == []
    assert bench.asked("extend", "hung")[-1] < 100
    assert bench.message("hung").visible_at == 100.0
    bench.run(until=100)
    assert bench.steal() == ["hung"]
    assert [(kind, name) for _, kind, name in bench.told(*BAD_NEWS)] == [
        (EventKind.LEASE_CAPPED, "hung")
    ]
    calls = len(bench.calls)
    bench.run(until=999)
    assert len(bench.calls) == calls


def test_a_handler_that_ends_within_its_message_timeout_is_kept_to_its_end() -> None:
    """The cap is reported when a further extension would be due: a threshold before."""
    terms = LeaseTerms(visibility_timeout=30, threshold=10, max_lease=100)
    bench = ConsumerHarness(terms)
    bench.process("a", takes=99)
    bench.run(until=200)
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == [(90.0, EventKind.LEASE_CAPPED, "a")]
    assert bench.message("a").is_deleted


def accepted(timeout: int, threshold: float, interval: float) -> bool:
    conf = {
        PREFIX + "visibility_timeout": timeout,
        PREFIX + "threshold": threshold,
        PREFIX + "interval": interval,
    }
    try:
        read_settings(conf.get, names=conf)
    except ConfigurationError:
        return False
    return True


@pytest.mark.parametrize(
    ("timeout", "threshold", "interval", "there", "here"),
    [
        pytest.param(30, 10, 1, True, True, id="both accept what leaves room"),
        pytest.param(10, 10, 1, False, False, id="both refuse a life as long as the timeout"),
        pytest.param(10, 8, 8.5, False, False, id="both refuse a timer that skips the life"),
        pytest.param(10, 6, 5, False, True, id="10 is not above 5 + 6: ours does not tick"),
        pytest.param(30, 1, 5, True, False, id="30 is above 5 + 1, but 5 skips the last 1"),
    ],
)
def test_the_timeout_must_leave_room_for_interval_and_life(
    timeout: int, threshold: float, interval: float, there: bool, here: bool
) -> None:
    """There: timeout > interval + life. Here: interval < threshold < timeout.

    A timer checks the life of a message at each tick. By then the message may have up to an
    interval less than the minimal life, which must still leave some time. Our keeper sleeps
    until a lease is due, and `interval` only bounds that sleep, so it is not added. But a bound
    longer than the threshold would be a misunderstanding: the keeper might sleep through its
    margin.
    """
    assert (timeout > interval + threshold) is there
    assert accepted(timeout, threshold, interval) is here


def test_a_message_with_settings_that_only_ours_accepts_never_lapses() -> None:
    """10 s with a threshold of 6 and an interval of 5: extended on the second, at 4 s."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=10, threshold=6), interval=5)
    bench.process("a", takes=60)
    bench.run(until=100)
    assert bench.asked("extend", "a")[:3] == [4.0, 8.0, 12.0]
    assert bench.lapses == []

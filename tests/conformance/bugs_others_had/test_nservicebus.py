"""NServiceBus: two bugs.

Source: Particular/NServiceBus.AmazonSQS, src/NServiceBus.Transport.SQS/Receiving/Renewal.cs:
the last of its catch clauses ends the renewal, and the one before it takes every
InvalidParameterValue for an expiry.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing.errors import throttled
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip

HOUR = 3_600.0


@pytest.mark.parametrize("seconds", [0.01, 1, 9])
def test_a_throttle_does_not_end_the_renewal(seconds: float) -> None:
    """The renewal continues for at least the threshold."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=200)
    bench.through(lambda call: Trip(error=throttled()) if 20 <= call.at < 20 + seconds else Trip())
    bench.run(until=300)
    assert bench.calls[0].outcomes == (Outcome.THROTTLED,)
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert bench.message("a").is_deleted


def test_the_refusal_past_12_hours_is_not_read_as_a_lost_lease() -> None:
    """The message is ours for as long as the last timeout holds, and its delete works.

    SQS dates the receive an hour earlier than we do, so it refuses before we expect it.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=3_600, threshold=1_200), interval=300)
    bench.process("a", takes=11 * HOUR + 1_000)
    bench.run(until=1)
    bench.message("a").received_at -= HOUR
    bench.run(until=11 * HOUR)
    assert bench.calls[-1].outcomes == (Outcome.CAPPED,)
    ((at, kind, _),) = bench.told(*BAD_NEWS)
    assert kind is EventKind.LEASE_CAPPED
    assert 10 * HOUR < at < 11 * HOUR
    assert bench.lease("a") is not None
    bench.run(until=13 * HOUR)
    assert [call.outcomes for call in bench.calls[-2:]] == [(Outcome.CAPPED,), (Outcome.DONE,)]
    assert bench.message("a").is_deleted


def test_the_refusal_is_avoided_where_we_know_better() -> None:
    """The last extension is shortened to the time that the 12 hours leave."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=3_600, threshold=1_200), interval=300)
    bench.process("a", takes=11.9 * HOUR)
    bench.run(until=13 * HOUR)
    assert {outcome for call in bench.calls for outcome in call.outcomes} == {Outcome.DONE}
    assert bench.lapses == []
    assert bench.message("a").is_deleted

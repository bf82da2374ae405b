"""MassTransit: two bugs.

Source: MassTransit/MassTransit, src/Transports/MassTransit.AmazonSqsTransport/
AmazonSqsTransport/AmazonSqsReceiveLockContext.cs: it renews for 60 s at most, 0.7 of a
longer timeout gone; and it begins a renewal for whatever is delivered.
"""

from __future__ import annotations

import random

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.testing.queue import QueueOptions
from tests.conformance.consumer_harness import ConsumerHarness
from tests.conformance.network import Trip


def test_an_extension_never_shortens_a_lease() -> None:
    """A timeout of 300 s, renewed for 60 s with 90 s left, was shortened by 30 s."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=300, threshold=100))
    bench.process("a", takes=2_000)
    bench.run(until=1_900)
    assert bench.shortened == []
    assert {ask.timeout for call in bench.calls for ask in call.asks} == {300}
    assert bench.asked("extend", "a") == [200.0 * beat for beat in range(1, 10)]


@pytest.mark.parametrize("seed", range(5))
def test_nor_does_one_that_fills_up_the_call_of_another(seed: int) -> None:
    """A call's other entries are extended before they are due.

    Timeouts from 10 s to an hour on one queue, received apart, by calls of up to 2 s.
    """
    generator = random.Random(seed)
    bench = ConsumerHarness(LeaseTerms.of(3_600), interval=5)
    bench.through(lambda call: Trip(there=generator.random(), back=generator.random()))
    for number in range(60):
        timeout = generator.choice([10, 30, 60, 300, 3_600])
        bench.process(
            f"m{number}",
            at=generator.random() * 600,
            takes=generator.random() * 2_000,
            terms=LeaseTerms.of(timeout),
        )
    bench.run(until=3_000)
    assert bench.shortened == []
    assert bench.lapses == []
    assert len(bench.keeper) == 0


@pytest.mark.parametrize("ends_at", [5, 25, 100])
def test_a_duplicate_delivery_starts_no_renewal_that_no_one_ends(ends_at: float) -> None:
    """The second copy is not run, so no one would end its renewal."""
    bench = ConsumerHarness(
        LeaseTerms(visibility_timeout=30, threshold=10),
        options=QueueOptions(visibility_timeout=30, duplicate_rate=1.0),
    )
    bench.process("a", takes=ends_at)
    bench.at(3, bench.receive)
    bench.run(until=ends_at + 1)
    first, *again = [receipt for _, _, receipt in bench.deliveries]
    assert first is ReceivedAs.NEW
    assert again
    assert set(again) == {ReceivedAs.REDELIVERED}
    assert len(bench.keeper) == 0
    calls = len(bench.calls)
    bench.run(until=1_000)
    assert len(bench.calls) == calls
    assert bench.message("a").is_deleted


def test_a_duplicate_that_comes_after_the_end_is_deleted_and_not_renewed() -> None:
    """A late copy of a message that is already done."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=25)
    # SQS loses the extension, and delivers the message again while its delete is under way.
    bench.through(lambda call: Trip(lost="request") if call.action == "extend" else Trip(there=6))
    bench.at(30, bench.receive)
    bench.run(until=1_000)
    assert [receipt for _, _, receipt in bench.deliveries] == [ReceivedAs.NEW, ReceivedAs.FINISHED]
    assert bench.message("a").is_deleted
    assert len(bench.keeper) == 0
    assert max(call.at for call in bench.calls) < 60

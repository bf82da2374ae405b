"""sqs-consumer: two bugs.

Source: bbc/sqs-consumer, src/consumer.ts: a heartbeat timer for each message or batch,
cleared once its end is through; one ChangeMessageVisibility for each message.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseTerms
from tests.conformance.consumer_harness import ConsumerHarness
from tests.conformance.network import Trip

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


@pytest.mark.parametrize("fails_at", [19.9, 20.0, 20.5, 21.9, 22.0, 25.0])
def test_no_late_beat_hides_a_released_message_again(fails_at: float) -> None:
    """Its timer is cleared after the release: a beat in between takes the message back.

    Calls take 2 s and an extension is due at 20 s, before, while and after the handler
    fails. The release waits for an extension that is under way, and so comes last.
    """
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=fails_at, failed=True)
    bench.through(lambda call: Trip(there=1, back=1))
    bench.run(until=100)
    *before, last = bench.calls
    assert last.action == "release"
    assert [call.action for call in before] in ([], ["extend"])
    assert all(call.at + 2 <= last.at for call in before)
    assert bench.message("a").visible_at == last.arrived_at
    assert bench.steal() == ["a"]
    assert len(bench.keeper) == 0


def test_ten_messages_take_one_call() -> None:
    """It makes one call for each message at each beat."""
    bench = ConsumerHarness(TERMS)
    bench.process(*(f"m{number:03}" for number in range(100)), takes=610)
    bench.run(until=605)
    assert bench.lapses == []
    assert {len(call.asks) for call in bench.calls} == {10}
    assert len(bench.calls) == 10 * 30

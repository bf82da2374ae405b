"""When a lease is renewed, and when no longer.

Source: Particular/NServiceBus.AmazonSQS, src/NServiceBus.Transport.SQS.Tests/Receiving/
RenewalTests.cs over src/NServiceBus.Transport.SQS/Receiving/Renewal.cs, and
src/NServiceBus.Transport.SQS.AcceptanceTests/Receiving/When_renewing_visibility*.cs.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.testing.errors import throttled
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Network, SentCall, Trip

TEN = LeaseTerms(visibility_timeout=10, threshold=5)
FIFO = "work.fifo"


@pytest.mark.parametrize(
    ("remaining", "timeout", "threshold", "expected"),
    [
        pytest.param(0.01, 30, 10, 0, id="almost 0 s left: at once"),
        pytest.param(0.3, 30, 10, 0, id="0.3 s left, less than 0.4: at once"),
        pytest.param(1, 1, 0.5, 0.5, id="1 s: after half of it"),
        pytest.param(20, 20, 10, 10, id="20 s: after half of it"),
        pytest.param(30, 30, 10, 20, id="30 s: 10 s before the end"),
        pytest.param(160, 160, 10, 150, id="160 s: 10 s before the end"),
    ],
)
def test_the_delay_before_a_renewal(
    remaining: float, timeout: int, threshold: float, expected: float
) -> None:
    """Should_calculate_correctly, Should_return_zero_delay_for_remaining_time_....

    Its buffer, the lesser of half of the time left and 10 s, is our threshold, which is a
    setting: with the same one, the same delay. Nothing here corresponds to its 0.4 s: a lease
    with less time left than the threshold is renewed at once.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=timeout, threshold=threshold))
    bench.send("a")
    bench.receive(asked_ago=timeout - remaining)
    bench.run(until=expected)
    assert bench.asked("extend", "a") == [expected]
    assert bench.told(*BAD_NEWS) == []


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [(0, 5.0), (0.3, 0.0375), (1, 0.125), (20, 2.5), (30, 3.75), (160, 5.0)],
)
def test_the_delay_before_a_renewal_is_tried_again(remaining: float, expected: float) -> None:
    """Not in that table: there a failed renewal is the last.

    A retry waits for at most an eighth of the time left, and for at most 5 s. Once no time is
    left, haste is useless.
    """
    pause = policy.retry_delay(20, margin=remaining, throttled=False, jitter=1.0)
    assert pause == pytest.approx(expected)


def test_it_renews_until_it_is_cancelled() -> None:
    """Should_renew_until_cancelled_according_to_renewal_time: two renewals.

    It requests 15 and 14 s, the timeout plus the time left. We request the timeout: SQS counts
    it from the call, and a crash should not delay the message for longer.
    """
    bench = ConsumerHarness(TEN)
    bench.process("a", takes=14)
    bench.run(until=60)
    extensions = [call for call in bench.calls if call.action == "extend"]
    assert [(call.at, call.asks[0].timeout) for call in extensions] == [(5.0, 10), (10.0, 10)]
    assert [call.at for call in bench.calls if call.action == "delete"] == [14.0]


def test_it_does_not_renew_before_its_time() -> None:
    """Should_not_renew_when_time_passed_below_renewal_time: 30 s left, cancelled after 18."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=18)
    bench.run(until=100)
    assert [call.action for call in bench.calls] == ["delete"]


def test_it_does_not_renew_a_message_that_expired_2_s_ago() -> None:
    """Should_renew_when_expired_but_below_threshold: a handle works until the next receive.

    No one can tell whether there was one. We neither renew nor handle the message, and SQS
    delivers it again.
    """
    bench = ConsumerHarness(TEN)
    bench.send("a")
    assert bench.receive(asked_ago=12) == []
    bench.run(until=0.3)
    assert bench.calls == []
    assert bench.receive() == ["a"]


def test_it_renews_10_s_before_the_end_of_160_s() -> None:
    """Should_renew_when_expired_but_below_buffer: an extension by less than was there."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=20, threshold=10))
    bench.send("a")
    bench.receive(hidden_for=160)
    bench.run(until=149.9)
    assert bench.calls == []
    bench.run(until=155)
    assert [(call.at, call.asks[0].timeout) for call in bench.calls] == [(150.0, 20)]


@pytest.mark.parametrize("is_due", [False, True])
def test_cancelled_before_the_first_call_it_makes_none(is_due: bool) -> None:
    """Should_indicate_stopped_when_cancelled_from_beginning."""
    bench = ConsumerHarness(TEN)
    bench.send("a")
    with bench.at_one_blow():
        bench.receive(asked_ago=9.9 if is_due else 0)
        bench.end("a")
    bench.run(until=60)
    assert [call.action for call in bench.calls] == ["delete"]


def test_a_handler_of_2_s_outlasts_a_timeout_of_1_s() -> None:
    """When_renewing_visibility."""
    bench = ConsumerHarness(LeaseTerms.of(1), interval=0.1)
    bench.process("a", takes=2)
    bench.run(until=10)
    assert bench.lapses == []
    assert len(bench.deliveries) == 1
    assert bench.message("a").is_deleted


@pytest.mark.parametrize("queue", ["work", FIFO])
def test_a_message_stolen_under_its_handler_is_noticed(queue: str) -> None:
    """When_renewing_visibility_failed: VT 2, the message is deleted behind its back.

    It cancels the handler. Here an event informs the owner.
    """
    bench = ConsumerHarness(LeaseTerms.of(2))
    bench.send("a", queue=queue, group="g" if queue == FIFO else None)
    bench.receive(queue=queue)
    bench.at(0.5, lambda: bench.delete_elsewhere("a"))
    bench.run(until=60)
    assert [(kind, name) for _, kind, name in bench.told(*BAD_NEWS)] == [
        (EventKind.LEASE_LOST, "a")
    ]
    assert bench.told(*BAD_NEWS)[0][0] < 2
    assert len(bench.calls) == 1


def _cut_off(since: float, until: float) -> Network:
    def network(call: SentCall) -> Trip:
        return Trip(lost="request", timeout=1.0) if since <= call.at < until else Trip()

    return network


def test_a_message_that_another_consumer_received_is_noticed_on_a_fifo_queue() -> None:
    """The same by a competing consumer, after our calls were cut off past the expiry.

    First our clock says expired, then SQS says lost. No call follows.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.send("a", queue=FIFO, group="g")
    bench.receive(queue=FIFO)
    bench.through(_cut_off(20, 34))
    bench.run(until=31)
    assert bench.steal(FIFO) == ["a"]
    bench.run(until=120)
    expired, lost = bench.told(*BAD_NEWS)
    assert expired[1] is EventKind.LEASE_EXPIRED
    assert lost[1] is EventKind.LEASE_LOST
    assert 30 <= expired[0] <= lost[0] == bench.calls[-1].at < 40
    assert bench.calls[-1].outcomes == (Outcome.LOST,)


def test_on_a_standard_queue_the_expiry_is_what_can_be_noticed() -> None:
    """There SQS takes the stale handle: its success is no proof of ownership.

    So the owner learns at the expiry that it may have happened.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=300)
    bench.through(_cut_off(20, 34))
    bench.run(until=31)
    assert bench.steal() == ["a"]
    bench.run(until=120)
    ((at, kind, _),) = bench.told(*BAD_NEWS)
    assert kind is EventKind.LEASE_EXPIRED
    assert 30 <= at < 40


def test_a_message_received_again_by_the_worker_that_lost_it_is_not_run_twice() -> None:
    """If this worker itself received it again, the lease continues under the new handle."""
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=300)
    bench.through(_cut_off(20, 34))
    bench.at(31, bench.receive)
    bench.run(until=400)
    assert [receipt for _, _, receipt in bench.deliveries] == [
        ReceivedAs.NEW,
        ReceivedAs.REDELIVERED,
    ]
    assert len(bench.lapses) == 1
    assert bench.message("a").is_deleted


def test_a_failed_renewal_is_retried_while_the_lease_lasts() -> None:
    """Should_notify_about_visibility_extension_failing: there one failure is the end."""
    bench = ConsumerHarness(TEN)
    bench.process("a", takes=60)
    bench.through(lambda call: Trip(error=throttled()) if 5 <= call.at < 9 else Trip())
    bench.run(until=100)
    assert bench.told(EventKind.EXTENSION_FAILED) != []
    assert bench.told(*BAD_NEWS) == []
    assert bench.lapses == []
    assert bench.message("a").is_deleted

"""When the owner of a lease learns that it can no longer rely on it.

Source: Azure/azure-sdk-for-python, test_queue_mock_auto_lock_renew_callback and
test_queue_mock_no_reusing_auto_lock_renew in sdk/servicebus/azure-servicebus/tests/
test_queues.py, with the mocks of tests/mocks.py. Its `on_lock_renew_failure` is our
`observer`: lease-expired, lease-lost and lease-capped are the events that it would fire for.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.policy import MAX_RETRY_SECONDS
from celery_sqs_heartbeat.testing.errors import internal
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import SentCall, Trip

#: Of its mock: locked for 2 s; renewed every second.
TERMS = LeaseTerms(visibility_timeout=2, threshold=1)
LOST = Trip(lost="request", timeout=0.3)


def no_extensions(call: SentCall) -> Trip:
    """Ignore every extension silently."""
    return LOST if call.action == "extend" else Trip()


def test_it_fires_when_a_lease_expires_silently() -> None:
    """The first part: renewals do nothing and report nothing.

    Ours fires twice, for two different events: at the expiry, after which another consumer may
    own the message, and when the keeper gives the lease up, a timeout later.
    """
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=60)
    bench.through(no_extensions)
    bench.run(until=30)
    (expired, given_up) = bench.told(*BAD_NEWS)
    assert expired[1:] == (EventKind.LEASE_EXPIRED, "a")
    assert expired[0] >= 2
    assert given_up[1:] == (EventKind.LEASE_LOST, "a")
    assert 4 <= given_up[0] <= 4 + LOST.timeout + MAX_RETRY_SECONDS
    assert all(event.outcome is None for event in bench.events if event.kind in BAD_NEWS)


@pytest.mark.parametrize("timeout", [0.3, 1.0])
def test_it_fires_no_later_than_the_call_that_outlives_the_lease(timeout: float) -> None:
    """The first part again, for the delay: there within a second, at the next check.

    While a call is under way the keeper can't know. After it, it can. The tenth of a second
    allows for a retry that still waits.
    """
    bench = ConsumerHarness(LeaseTerms(visibility_timeout=30, threshold=10))
    bench.process("a", takes=300)
    bench.through(lambda call: Trip(lost="request", timeout=timeout))
    bench.run(until=60)
    at, kind, _ = bench.told(*BAD_NEWS)[0]
    assert kind is EventKind.LEASE_EXPIRED
    assert 30 <= at <= 30 + timeout + 0.1


def test_it_does_not_fire_in_normal_operation() -> None:
    """The second part."""
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=600)
    bench.run(until=610)
    assert bench.told(*BAD_NEWS, EventKind.EXTENSION_FAILED) == []


@pytest.mark.parametrize("failed", [False, True], ids=["done", "released"])
def test_it_does_not_fire_for_a_settled_message_even_after_its_expiry(failed: bool) -> None:
    """The third part: settled within the lock, which then runs out."""
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=1.5, failed=failed)
    bench.through(no_extensions)
    bench.run(until=60)
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.keeper) == 0


def test_it_fires_at_once_with_the_error_when_a_renewal_is_refused() -> None:
    """The fourth part, overt failure: it fires once and carries the error."""
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=60)
    bench.at(0.5, lambda: bench.delete_elsewhere("a"))
    bench.run(until=30)
    (event,) = [event for event in bench.events if event.kind in BAD_NEWS]
    assert event.kind is EventKind.LEASE_LOST
    assert event.outcome is Outcome.LOST
    assert event.at == 1.0


def test_errors_are_reported_with_each_try_and_the_expiry_once() -> None:
    """The same with a temporary error: each try reports it, and the consequence follows."""
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=60)
    bench.through(lambda call: Trip(error=internal()) if call.action == "extend" else Trip())
    bench.run(until=30)
    tries = [event for event in bench.events if event.kind is EventKind.EXTENSION_FAILED]
    assert len(tries) >= 5
    assert {event.outcome for event in tries} == {Outcome.UNSURE}
    assert [kind for _, kind, _ in bench.told(*BAD_NEWS)] == [
        EventKind.LEASE_EXPIRED,
        EventKind.LEASE_LOST,
    ]


def test_it_does_not_fire_once_the_keeper_is_closed() -> None:
    """The fifth part: the renewer is closed while the lock runs out.

    The only place where the keeper's thread runs, until it is ended.
    """
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", takes=60)
    bench.run(until=0.5)
    bench.keeper.start()
    bench.keeper.stop()
    assert len(bench.keeper) == 0
    bench.run(until=30)
    assert bench.told(*BAD_NEWS) == []
    assert bench.calls == []


def test_it_does_not_fire_once_the_receiver_is_closed() -> None:
    """The sixth part: kombu's channel releases the messages it holds when it closes."""
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("a", "b", takes=60)
    bench.run(until=0.5)
    with bench.at_one_blow():
        for name in ("a", "b"):
            bench.keeper.release(bench.handle(name))
    bench.run(until=30)
    assert bench.told(*BAD_NEWS) == []
    assert bench.timeline() == [(0.5, "release", ["a", "b"])]


def test_a_closed_keeper_may_be_started_again() -> None:
    """test_queue_mock_no_reusing_auto_lock_renew, where ours differs.

    A closed renewer refuses to be used again. Ours is started again at every reconnect of
    a worker, with no memory of its former leases.
    """
    bench = ConsumerHarness(TERMS, interval=0.5)
    bench.process("old", takes=60)
    bench.run(until=0.5)
    bench.keeper.start()
    bench.keeper.stop()
    bench.process("new", at=1, takes=9)
    bench.run(until=20)
    assert bench.asked("extend", "old") == []
    assert bench.message("new").is_deleted

"""Which leases are kept, and for how long.

Source: googleapis/python-pubsub, tests/unit/pubsub_v1/subscriber/test_leaser.py, and
google/cloud/pubsub_v1/subscriber/_protocol/leaser.py. Its ack deadline of 10 s is our
visibility timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.testing.queue import QueueOptions
from tests.conformance.consumer_harness import BAD_NEWS, ConsumerHarness
from tests.conformance.network import Trip

TERMS = LeaseTerms.of(10)


def test_two_are_added_and_one_is_removed() -> None:
    """test_add_and_remove."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=1)
    bench.process("b", takes=100)
    bench.run(until=0.5)
    assert len(bench.keeper) == 2
    bench.run(until=2)
    assert len(bench.keeper) == 1
    assert bench.lease("b") is not None


def test_the_same_receive_added_twice_is_one_lease() -> None:
    """test_add_already_managed: once in the table, once in each call."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=30)
    bench.run(until=0)
    again = {"MessageId": bench.message("a").message_id, "ReceiptHandle": bench.handle("a")}
    assert bench.keeper.receive(bench.queue().url, again) is ReceivedAs.REDELIVERED
    bench.wake()
    bench.run(until=60)
    assert all(call.names == ["a"] for call in bench.calls)
    assert len(bench.asked("delete", "a")) == 1
    assert len(bench.keeper) == 0


def test_a_message_delivered_twice_is_one_lease_under_its_newest_handle() -> None:
    """The same for SQS, where the second delivery has another handle."""
    bench = ConsumerHarness(TERMS, options=QueueOptions(visibility_timeout=10, duplicate_rate=1.0))
    bench.process("a", takes=30)
    bench.at(4, bench.receive)
    bench.run(until=5)
    assert [receipt for _, _, receipt in bench.deliveries] == [
        ReceivedAs.NEW,
        ReceivedAs.REDELIVERED,
    ]
    lease = bench.lease("a")
    assert lease is not None
    assert lease.receipt_handle == bench.message("a").handle != bench.handle("a")
    bench.run(until=60)
    assert bench.message("a").is_deleted
    assert bench.lapses == []
    assert len(bench.keeper) == 0


@pytest.mark.parametrize(
    "remove", [ThreadKeeper.done, ThreadKeeper.release, ThreadKeeper.let_expire]
)
def test_removing_an_unknown_message_changes_nothing(
    remove: Callable[[ThreadKeeper, str], bool], caplog: pytest.LogCaptureFixture
) -> None:
    """test_remove_not_managed; and removing twice, for its test_remove_negative_bytes."""
    caplog.set_level(logging.WARNING)
    bench = ConsumerHarness(TERMS)
    assert remove(bench.keeper, "unknown") is False
    bench.process("a", takes=100)
    bench.run(until=1)
    handle = bench.handle("a")
    for _ in range(2):
        remove(bench.keeper, handle)
        bench.wake()
        bench.run(until=bench.now + 1)
    assert len(bench.keeper) == bench.keeper.ending == 0
    assert len(bench.calls) == (0 if remove is ThreadKeeper.let_expire else 1)
    assert caplog.records == []


def test_leases_are_renewed_while_the_consumer_is_paused() -> None:
    """test_maintain_leases_inactive_manager: no receive for ten minutes, and handlers on."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", "b", takes=600)
    bench.run(until=700)
    assert len(bench.deliveries) == 2
    assert bench.lapses == []
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.asked("extend", "a")) == pytest.approx(600 / TERMS.visibility_timeout * 1.5, 1)
    assert bench.message("a").is_deleted


def test_each_renewal_asks_for_the_whole_deadline_for_what_is_kept() -> None:
    """test_maintain_leases_ack_ids."""
    bench = ConsumerHarness(TERMS)
    bench.process("a", takes=8)
    bench.run(until=7.9)
    (call,) = bench.calls
    assert [(ask.name, ask.action, ask.timeout) for ask in call.asks] == [("a", "extend", 10)]


def test_with_nothing_kept_there_are_no_calls() -> None:
    """test_maintain_leases_no_ack_ids."""
    bench = ConsumerHarness(TERMS)
    bench.wake()
    bench.run(until=600)
    assert bench.calls == []


def test_only_the_outdated_are_dropped() -> None:
    """test_maintain_leases_outdated_items: one from the start, one from its very end.

    Its maximum, 3,600 s by default, counts from when a message is handed to its callback,
    and messages that wait do not age. Ours counts from the receive, as SQS's 12 hours do.
    """
    terms = LeaseTerms(visibility_timeout=10, threshold=3, max_lease=60)
    bench = ConsumerHarness(terms)
    bench.process("old", at=0, takes=500)
    bench.process("young", at=59, takes=40)
    bench.run(until=90)
    ((told_at, kind, name),) = bench.told(*BAD_NEWS)
    assert (kind, name) == (EventKind.LEASE_CAPPED, "old")
    assert told_at <= 60
    assert max(bench.asked("extend", "old")) < 60
    assert bench.message("old").visible_at == pytest.approx(60, abs=1)
    assert max(bench.asked("extend", "young")) > 80
    bench.run(until=120)
    assert [name for _, name in bench.lapses] == ["old"]
    assert bench.message("young").is_deleted


def test_a_message_that_the_server_calls_outdated_is_dropped_too() -> None:
    """test_maintain_leases_expired_ack_ids_exactly_once, by FIFO's refusal."""
    bench = ConsumerHarness(TERMS)
    bench.send("a", "b", queue="work.fifo", group="g")
    bench.receive(queue="work.fifo")
    bench.at(3, lambda: bench.delete_elsewhere("a"))
    bench.run(until=60)
    assert [(kind, name) for _, kind, name in bench.told(*BAD_NEWS)] == [
        (EventKind.LEASE_LOST, "a")
    ]
    assert len(bench.asked("extend", "a")) == 1
    assert len(bench.asked("extend", "b")) > 5


@pytest.mark.parametrize(("there", "back"), [(3.0, 0.0), (1.5, 1.5), (0.0, 3.0)])
def test_calls_that_take_3_s_never_let_a_lease_lapse(there: float, back: float) -> None:
    """leaser.py: it must subtract the time of a call from its next sleep."""
    bench = ConsumerHarness(TERMS)
    bench.through(lambda call: Trip(there=there, back=back))
    for number in range(25):
        bench.process(f"m{number}", at=number * 0.7, takes=300)
    bench.run(until=400)
    assert bench.lapses == []
    assert bench.shortened == []
    assert bench.told(*BAD_NEWS) == []
    assert len(bench.keeper) == 0
    assert len(bench.deliveries) == 25

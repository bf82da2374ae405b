"""How long an ack waits for others, to share their DeleteMessageBatch."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.policy import GATHER_SECONDS
from tests.unit.book_harness import BookHarness


def holding(count: int) -> BookHarness:
    bench = BookHarness()
    for number in range(count):
        bench.receive(f"m{number}")
    return bench


def ack(bench: BookHarness, *numbers: int) -> None:
    for number in numbers:
        bench.book.done(f"m{number}", bench.now)


def deleted(bench: BookHarness) -> list[int]:
    """Plan and answer the calls that are due. Return how many messages each deletes."""
    calls = bench.plan()
    for call in calls:
        bench.apply_results(call, Outcome.DONE)
    return [len(call.entries) for call in calls]


def test_an_ack_waits_for_others_for_a_moment() -> None:
    bench = holding(3)
    ack(bench, 0)
    assert deleted(bench) == []
    bench.now += GATHER_SECONDS
    assert deleted(bench) == [1]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_ack_of_the_last_held_message_waits_for_none(count: int) -> None:
    bench = holding(count)
    ack(bench, *range(count))
    assert deleted(bench) == [count]


def test_acks_are_sent_as_soon_as_they_fill_a_batch() -> None:
    bench = holding(40)
    ack(bench, *range(9))
    assert deleted(bench) == []
    ack(bench, 9)
    assert deleted(bench) == [10]
    ack(bench, *range(10, 15))
    assert deleted(bench) == []
    bench.now += GATHER_SECONDS
    assert deleted(bench) == [5]


def test_acks_that_a_full_batch_leaves_behind_count_for_the_next_one() -> None:
    bench = holding(40)
    ack(bench, *range(13))
    assert deleted(bench) == [10]
    ack(bench, *range(13, 19))
    assert deleted(bench) == []
    ack(bench, 19)
    assert deleted(bench) == [10]


def test_short_tasks_one_at_a_time_share_their_deletes() -> None:
    bench = BookHarness()
    sent: list[int] = []
    for number in range(20):
        bench.receive(f"m{number}")
        ack(bench, number)
        sent += deleted(bench)
        bench.now += GATHER_SECONDS / 4
    assert sent == [1, *[4] * 4]


def test_a_message_of_another_queue_is_not_waited_for() -> None:
    bench = holding(1)
    bench.receive("other", queue="https://sqs/1/other")
    ack(bench, 0)
    assert deleted(bench) == [1]


@pytest.mark.parametrize("way", ["release", "let_expire"])
def test_a_message_that_is_no_longer_held_is_not_waited_for(way: str) -> None:
    bench = holding(2)
    if way == "release":
        bench.book.release("m1", 0.0, bench.now)
    else:
        bench.book.let_expire("m1", bench.now)
    deleted(bench)
    ack(bench, 0)
    assert deleted(bench) == [1]


def test_failed_deletes_do_not_make_later_acks_hurry() -> None:
    bench = holding(30)
    ack(bench, *range(10))
    for call in bench.plan():
        bench.apply_results(call, Outcome.FAILED)
    ack(bench, 10)
    assert bench.plan() == []

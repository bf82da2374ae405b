"""The heap of leases from which any lease can be taken."""

from __future__ import annotations

import random

import pytest

from celery_sqs_heartbeat.core.heap import LeaseHeap
from celery_sqs_heartbeat.core.lease import Lease, LeaseTerms


def new_lease(name: str = "m") -> Lease:
    return Lease(queue_url="q", message_id=name, terms=LeaseTerms.of(30), held_since=0.0)


def test_it_orders_by_time_and_forgets_what_was_moved_or_taken_out() -> None:
    heap, a, b, c = LeaseHeap(), new_lease(), new_lease(), new_lease()
    heap.put(a, 1.0)
    heap.put(b, 2.0)
    heap.put(c, 3.0)
    heap.put(a, 4.0)
    heap.discard(b)
    heap.discard(b)
    assert len(heap) == 2
    assert heap.first_time() == 3.0
    assert [heap.pop(), heap.pop()] == [c, a]
    assert heap.first_time() is None
    with pytest.raises(IndexError):
        heap.pop()


def test_it_agrees_with_sorting_under_random_changes() -> None:
    rng = random.Random(7)
    heap, truth = LeaseHeap(), dict[Lease, float]()
    leases = [new_lease() for _ in range(50)]
    for _ in range(5_000):
        lease = rng.choice(leases)
        if rng.random() < 0.7:
            truth[lease] = rng.random()
            heap.put(lease, truth[lease])
        elif rng.random() < 0.5:
            truth.pop(lease, None)
            heap.discard(lease)
        elif truth:
            earliest = min(truth.values())
            assert heap.first_time() == earliest
            assert truth.pop(heap.pop()) == earliest
        assert len(heap) == len(truth)


def test_acked_leases_do_not_pile_up_until_their_extension_had_been_due() -> None:
    heap = LeaseHeap()
    for number in range(10_000):
        lease = new_lease()
        heap.put(lease, 1_800.0 + number)
        heap.discard(lease)
    assert len(heap._entries) < 100

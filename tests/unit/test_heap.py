"""The heap of leases, from which any lease can be removed."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.heap import LeaseHeap, LeasePlaces
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms


def new_heap() -> tuple[LeasePlaces, LeaseHeap]:
    places = LeasePlaces("waits_as")
    return places, LeaseHeap(places)


def new_lease(name: str = "m") -> Lease:
    return Lease(queue_url="q", message_id=name, terms=LeaseTerms.of(30), held_since=0.0)


def test_it_orders_by_time_and_forgets_what_was_moved_or_taken_out() -> None:
    places, heap = new_heap()
    a, b, c = new_lease(), new_lease(), new_lease()
    heap.put(a, 1.0)
    heap.put(b, 2.0)
    heap.put(c, 3.0)
    heap.put(a, 4.0)
    places.leave(b)
    places.leave(b)
    assert places.taken == 2
    assert heap.first_time() == 3.0
    assert [heap.pop(), heap.pop()] == [c, a]
    assert heap.first_time() is None
    assert places.taken == 0
    with pytest.raises(IndexError):
        heap.pop()


def test_a_lease_that_is_postponed_comes_after_those_that_are_earlier_then() -> None:
    places, heap = new_heap()
    a, b = new_lease(), new_lease()
    heap.put(a, 1.0)
    heap.put(b, 2.0)
    heap.postpone(a, 3.0)
    assert [*heap] == [(b, 2.0), (a, 3.0)]
    # It is not the first any more.
    heap.postpone(a, 4.0)
    assert [heap.pop(), heap.pop()] == [b, a]
    assert places.taken == 0


def test_it_agrees_with_sorting_under_random_changes() -> None:
    rng = random.Random(7)
    places, heap = new_heap()
    truth = dict[Lease, float]()
    leases = [new_lease() for _ in range(50)]
    for _ in range(5_000):
        lease = rng.choice(leases)
        if rng.random() < 0.7:
            truth[lease] = rng.random()
            heap.put(lease, truth[lease])
        elif rng.random() < 0.5:
            truth.pop(lease, None)
            places.leave(lease)
        elif truth:
            earliest = min(truth.values())
            assert heap.first_time() == earliest
            assert truth.pop(heap.pop()) == earliest
        assert places.taken == len(truth)
        assert dict(heap) == truth


def test_a_lease_that_is_put_into_another_heap_leaves_the_first() -> None:
    places, heap = new_heap()
    other, lease = LeaseHeap(places), new_lease()
    heap.put(lease, 1.0)
    other.put(lease, 2.0)
    assert heap.first() is None
    assert list(heap) == []
    assert list(other) == [(lease, 2.0)]
    assert places.taken == 1


class Passing(Lease):
    """A lease whose deallocation tests can observe."""

    __slots__ = ("__weakref__",)


def pass_through(places: LeasePlaces, heap: LeaseHeap, time: float) -> weakref.ref[Lease]:
    """Put a lease in and take it out. It lives while the heap has an entry for it."""
    lease = Passing(queue_url="q", message_id="m", terms=LeaseTerms.of(30), held_since=0.0)
    heap.put(lease, time)
    places.leave(lease)
    return weakref.ref(lease)


def alive(leases: list[weakref.ref[Lease]]) -> int:
    return sum(lease() is not None for lease in leases)


def test_acked_leases_do_not_pile_up_until_their_extension_would_be_due() -> None:
    places, heap = new_heap()
    passed = [pass_through(places, heap, 1_800.0 + number) for number in range(10_000)]
    assert alive(passed) < 100


class Interrupted(Lease):
    """A lease whose look-up a signal interrupts. The signal's handler changes the same heap."""

    __slots__ = ("handler", "place")
    handler: Callable[[], object] | None

    def look_up(self) -> int:
        handler, self.handler = getattr(self, "handler", None), None
        if handler is not None:
            handler()
        return self.place

    def set_place(self, number: int) -> None:
        self.place = number

    waits_as: Any = property(look_up, set_place)


def interrupted(handler: Callable[[], object] | None = None) -> Interrupted:
    lease = Interrupted(queue_url="q", message_id="m", terms=LeaseTerms.of(30), held_since=0.0)
    lease.handler = handler
    return lease


def test_a_lease_put_in_during_a_rebuild_is_not_lost() -> None:
    places, heap = new_heap()
    late, held = new_lease("late"), interrupted()
    heap.put(held, 1.0)
    # As many dead entries as two live leases allow. One more, and the heap is rebuilt.
    passed = [pass_through(places, heap, 2.0) for _ in range(2 * 2 + 32 - 1)]
    assert alive(passed) == len(passed)
    held.handler = lambda: heap.put(late, 0.5)
    heap.put(new_lease("last"), 3.0)
    assert held.handler is None
    assert [heap.pop(), heap.pop()] == [late, held]
    # The next change rebuilds it.
    heap.put(new_lease(), 4.0)
    assert alive(passed) == 0


def test_a_lease_put_in_while_a_dead_entry_is_checked_is_not_lost() -> None:
    places, heap = new_heap()
    first, gone = new_lease("first"), interrupted()
    heap.put(gone, 1.0)
    places.leave(gone)
    gone.handler = lambda: heap.put(first, 0.5)
    assert heap.first_time() == 0.5
    assert heap.pop() is first


def test_a_lease_that_is_taken_out_while_it_is_popped_is_not_returned() -> None:
    places, heap = new_heap()
    second, first = new_lease("second"), interrupted()
    heap.put(first, 1.0)
    heap.put(second, 2.0)
    first.handler = lambda: places.leave(first)
    assert heap.pop() is second

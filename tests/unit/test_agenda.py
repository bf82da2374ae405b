"""Which call is due when, over all queues, and what changes of leases leave behind."""

from __future__ import annotations

import math
import random
import weakref

import pytest

from celery_sqs_heartbeat.leases.agenda import MAX_CALLS_PER_LANE, Agenda
from celery_sqs_heartbeat.leases.calls import CallKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.leases.policy import entry_for

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
#: Beyond twice the leases that it has.
SLACK = 32


class Placed(Lease):
    """A lease whose deallocation tests can observe."""

    __slots__ = ("__weakref__",)


def lease(
    name: str = "m", *, expires_at: float = 30.0, extend_at: float | None = None, queue: str = "q"
) -> Lease:
    made = Placed(queue_url=queue, message_id=name, terms=TERMS, held_since=0.0)
    made.lasts_until(expires_at, math.inf)
    if extend_at is not None:
        made.attempts, made.extend_at = 1, extend_at
    return made


def holding(*leases: Lease) -> Agenda:
    agenda = Agenda()
    for each in leases:
        agenda.add(each)
        agenda.put(each)
    return agenda


def planned(agenda: Agenda, now: float, room: int = 16) -> list[list[str]]:
    calls = agenda.plan(now, room, entry_for)
    return [[entry.lease.message_id for entry in call.entries] for call in calls]


@pytest.mark.parametrize(
    ("leases", "first"),
    [
        ([lease("a", expires_at=29), lease("b", expires_at=30)], "a"),
        ([lease("a", expires_at=30), lease("b", expires_at=29, queue="other")], "b"),
        # A retry is due later than a new lease, but expires sooner.
        ([lease("new", expires_at=30), lease("retry", expires_at=28, extend_at=20.5)], "retry"),
        ([lease("new", expires_at=30), lease("retry", expires_at=31, extend_at=20.5)], "new"),
        (
            [lease("new", expires_at=30), lease("r", expires_at=28, extend_at=20.5, queue="other")],
            "r",
        ),
    ],
)
def test_of_the_leases_that_are_due_the_one_that_expires_first_goes_first(
    leases: list[Lease], first: str
) -> None:
    assert planned(holding(*leases), 21.0, room=1)[0][0] == first


def test_a_lease_that_is_not_due_waits_although_it_expires_first() -> None:
    agenda = holding(lease("new", expires_at=30), lease("retry", expires_at=28, extend_at=23))
    assert agenda.next_due(0.0, 1) == 20
    assert planned(agenda, 19.9) == []


def test_a_queue_has_four_calls_of_a_kind_in_flight_at_most() -> None:
    agenda = holding(*(lease(f"m{number}") for number in range(70)), lease("x", queue="other"))
    calls = agenda.plan(20.0, 16, entry_for)
    assert [call.queue_url for call in calls].count("q") == MAX_CALLS_PER_LANE
    assert len(calls) == agenda.in_flight == MAX_CALLS_PER_LANE + 1
    assert planned(agenda, 20.1) == []
    agenda.end(calls[0])
    assert [len(each) for each in planned(agenda, 20.1)] == [10]


def test_a_queue_that_refuses_is_probed_with_one_entry_at_a_time() -> None:
    agenda = holding(*(lease(f"m{number}") for number in range(30)))
    for call in agenda.plan(20.0, 1, entry_for):
        agenda.end(call)
    agenda.refuse("q", CallKind.CHANGE_VISIBILITY, 25.0)
    assert planned(agenda, 24.0) == []
    assert agenda.next_due(24.0, 1) == 25
    assert [len(each) for each in planned(agenda, 25.0)] == [1]
    agenda.grant("q", CallKind.CHANGE_VISIBILITY)
    assert [len(each) for each in planned(agenda, 25.0)] == [10, 9]


def test_a_lease_that_broke_a_shared_call_gets_calls_of_its_own() -> None:
    leases = [lease(f"m{number}", expires_at=30 + number / 10) for number in range(4)]
    leases[2].is_isolated = True
    assert planned(holding(*leases), 20.3) == [["m0", "m1"], ["m2"], ["m3"]]


def test_it_agrees_with_sorting_under_random_changes() -> None:
    rng = random.Random(7)
    agenda, held = Agenda(), dict[Lease, None]()
    for step in range(5_000):
        if len(held) < 30 or rng.random() < 0.2:
            each = lease(f"m{step}", queue=rng.choice("abc"))
            agenda.add(each)
            held[each] = None
        else:
            each = rng.choice(list(held))
        if rng.random() < 0.2:
            agenda.remove(each)
            del held[each]
        else:
            each.lasts_until(30 + rng.random(), math.inf)
            agenda.put(each)
        assert agenda.next_due(0.0, 0) == min(each.expires_at for each in held)
        assert agenda.next_due(0.0, 1) == min(each.extend_at for each in held)
    expiries = [each.expires_at for each in agenda.pop_expired(31.0)]
    assert expiries == sorted(each.expires_at for each in held)
    for lane in agenda.lanes.values():
        assert len(lane.waiting) <= 2 * len(held) + SLACK


def test_ended_leases_do_not_pile_up_until_their_extension_would_be_due() -> None:
    agenda = Agenda()
    passed: list[weakref.ref[Lease]] = []
    for number in range(10_000):
        each = lease(f"m{number}", expires_at=43_200.0 + number)
        agenda.add(each)
        agenda.put(each)
        agenda.remove(each)
        passed.append(weakref.ref(each))
    del each
    assert sum(each() is not None for each in passed) <= SLACK + 1


def test_a_lease_in_a_call_has_no_place_until_the_call_ends() -> None:
    one = lease()
    agenda = holding(one)
    (call,) = agenda.plan(20.0, 1, entry_for)
    agenda.put(one)
    assert planned(agenda, 25.0) == []
    assert agenda.end(call)
    assert not agenda.end(call)
    agenda.put(one)
    assert planned(agenda, 25.0) == [["m"]]


def test_a_release_that_waits_for_others_has_no_place_but_still_expires() -> None:
    one = lease()
    agenda = holding(one)
    agenda.end_hold(one)
    one.set_goal(Goal.RELEASE, 5.0, due=5.0)
    agenda.put(one, waits_for_others=True)
    assert agenda.next_due(5.0, 1) == one.expires_at
    assert planned(agenda, 5.0) == []
    assert list(agenda.pop_expired(30.0)) == [one]

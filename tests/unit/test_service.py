"""The core knows of a service only what its traits say: here of one that is not SQS."""

from __future__ import annotations

from dataclasses import replace

from celery_sqs_heartbeat.leases.calls import CallKind, Outcome
from celery_sqs_heartbeat.leases.lease import LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.service import SQS
from tests.unit.book_harness import BookHarness

#: It changes one message a call, deletes sixteen, and hides a message however long it is asked to.
OTHER = replace(SQS, most_changed=1, most_deleted=16, longest_hold=10**9)
TERMS = LeaseTerms(
    visibility_timeout=30, threshold=10, max_lease=10**9, longest_hold=OTHER.longest_hold
)


def test_calls_have_as_many_entries_as_the_service_permits() -> None:
    world = BookHarness(OTHER)
    for number in range(20):
        world.receive(f"m{number}", terms=TERMS)
    world.now += 20
    extensions = world.plan()
    assert {len(call.entries) for call in extensions} == {1}
    for call in extensions:
        world.apply_results(call, Outcome.DONE)
    for number in range(20):
        world.book.done(f"m{number}", world.now)
    deletes = [call for call in world.plan() if call.kind is CallKind.DELETE]
    assert [len(call.entries) for call in deletes] == [16]


def test_a_lease_lasts_as_long_as_the_service_hides_its_message() -> None:
    world = BookHarness(OTHER)
    world.receive("m", terms=TERMS)
    until = world.now + 2 * SQS.longest_hold
    while world.now < until:
        world.now += 20
        world.apply_results(world.one_call(), Outcome.DONE)
    assert world.lease("m").status is LeaseStatus.OWNED
    world.book.release("m", 100, world.now)
    assert world.one_call().entries[0].timeout == 100

"""Conditions that must hold for the book after every step, and for every call that it plans."""

from __future__ import annotations

from collections.abc import Iterable

from celery_sqs_heartbeat.leases.agenda import MAX_CALLS_PER_LANE
from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseStatus
from tests.model.truth import TWELVE_HOURS, Held, World

EXTENDABLE = (LeaseStatus.OWNED, LeaseStatus.EXPIRED, LeaseStatus.REFUSED)
#: The rounding error of sums of floats of up to some days.
EPSILON = 1e-6
KINDS = {
    Action.EXTEND: CallKind.CHANGE_VISIBILITY,
    Action.RELEASE: CallKind.CHANGE_VISIBILITY,
    Action.DELETE: CallKind.DELETE,
}


def check_book(book: LeaseBook, world: World, handles: Iterable[str], now: float) -> None:
    """Check all that must hold between two steps.

    Args:
        handles: All handles that ever existed.
    """
    leases = {lease.key: lease for lease in book}
    assert leases.keys() == world.held.keys()
    assert len(book) == len(leases)
    assert book.ending == sum(each.wanted != "hold" for each in world.held.values())
    assert {handle: lease for handle in handles if (lease := book.get(handle))} == {
        handle: leases[key] for key, each in world.held.items() for handle in each.handles
    }
    _check_calls_out(book, world)
    for key, lease in leases.items():
        _check_lease(lease, world.held[key], world, now)
    _check_next_due(book, world, now)


def _check_calls_out(book: LeaseBook, world: World) -> None:
    for call, _ in world.outstanding:
        assert world.in_flight(call.queue_url, call.kind) <= MAX_CALLS_PER_LANE
    out = [entry.lease for call, _ in world.outstanding for entry in call.entries]
    assert len(out) == len(set(out)), "a lease is in two calls"
    for call, _ in world.outstanding:
        assert all(entry.lease.pending is entry.action for entry in call.entries)
    assert all((lease.pending is not None) == (lease in out) for lease in book)


def _check_lease(lease: Lease, held: Held, world: World, now: float) -> None:
    assert lease.goal.value == held.wanted
    assert lease.expires_at == held.expires_at
    assert lease.receipt_handle == held.handle
    terms = held.terms
    if lease.status is LeaseStatus.LOST:
        is_over = now >= held.expires_at + terms.visibility_timeout * terms.extend_late
        # A late extension that is cut short would shorten someone else's lease.
        is_cut = now >= held.expires_at and held.limit - now < terms.visibility_timeout
        assert held.lost or is_over or is_cut
    elif lease.status is LeaseStatus.CAPPED:
        wish = max(now + terms.visibility_timeout, held.hidden_at_most)
        assert held.capped or held.limit <= wish + 1
    elif lease.status is LeaseStatus.REFUSED:
        assert lease.queue_url in world.denied
    else:
        assert not held.lost
        assert not held.capped


def _check_next_due(book: LeaseBook, world: World, now: float) -> None:
    """Check that the keeper will not sleep beyond what has to be done."""
    due = max(book.agenda.next_due(now), now) - EPSILON
    assert all(due <= max(now, world.waits_until(call)) for call, _ in world.outstanding)
    for lease in book:
        held = world.held[lease.key]
        kind = CallKind.DELETE if held.wanted == "delete" else CallKind.CHANGE_VISIBILITY
        is_refused = kind is CallKind.CHANGE_VISIBILITY and lease.queue_url in world.refusing
        is_full = world.in_flight(lease.queue_url, kind) == MAX_CALLS_PER_LANE
        can_be_called = not (world.in_a_call(held) or is_refused or is_full)
        extends = held.terms.extend and lease.status in EXTENDABLE
        if can_be_called and (extends or held.wanted != "hold"):
            latest = held.extend_due if held.wanted == "hold" else held.end_due
            assert due <= max(now, latest), (held, now)
        elif held.wanted == "hold" and extends and lease.status is not LeaseStatus.EXPIRED:
            # Its expiry is due although it can't be called for.
            assert due <= max(now, held.expires_at), (held, now)


def check_call(call: Call, world: World, now: float) -> None:
    """Check a call that was just planned, before it is noted in the world."""
    is_probe = call.kind is CallKind.CHANGE_VISIBILITY and call.queue_url in world.refusing
    assert 1 <= len(call.entries) <= (1 if is_probe else 10)
    out = world.in_flight(call.queue_url, call.kind)
    assert not (is_probe and out)
    assert call.planned_at == now
    assert {entry.lease.queue_url for entry in call.entries} == {call.queue_url}
    assert len({entry.receipt_handle for entry in call.entries}) == len(call.entries)
    for entry in call.entries:
        assert KINDS[entry.action] is call.kind
        held = world.held[entry.lease.key]
        assert entry.receipt_handle == held.handle
        assert not world.in_a_call(held)
        {Action.EXTEND: _check_extension, Action.RELEASE: _check_release}.get(
            entry.action, _check_delete
        )(entry, held, world, now)


def _check_extension(entry: Entry, held: Held, world: World, now: float) -> None:
    if held.wanted != "hold":
        # Only while a delete is repeated, or an extension that was sent before it.
        assert held.wanted == "delete"
        assert held.handle in held.deletes_sent or held.troubled
    assert held.terms.extend
    assert held.terms.extend_late or held.wanted == "delete" or now < held.expires_at
    assert not held.lost
    assert entry.receipt_handle not in world.released, "an extension follows a release"
    assert not world.is_under_way(held, Action.DELETE)
    assert 1 <= entry.timeout <= TWELVE_HOURS
    assert held.expires_at < now + entry.timeout <= held.limit + EPSILON
    # SQS counts from a call's arrival, so a shorter timeout might shorten the lease.
    assert entry.timeout >= held.last_timeout or now + entry.timeout > held.hidden_at_most


def _check_release(entry: Entry, held: Held, world: World, now: float) -> None:
    assert held.wanted == "release"
    assert now < held.expires_at, "a release comes too late"
    assert held.is_exclusive, "a release of a message that may be someone else's"
    assert not held.lost, "a release by a handle that SQS called lost"
    assert 0 <= entry.timeout <= TWELVE_HOURS
    assert entry.timeout < max(held.delay, 0) + 1


def _check_delete(entry: Entry, held: Held, world: World, now: float) -> None:
    assert held.wanted == "delete"
    assert held.key in world.finished

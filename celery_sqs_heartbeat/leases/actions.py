"""What is to be done next for a lease, and the entry of a call that does it."""

from __future__ import annotations

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import CallKind, Entry
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus

CALL_KIND = {
    Action.EXTEND: CallKind.CHANGE_VISIBILITY,
    Action.RELEASE: CallKind.CHANGE_VISIBILITY,
    Action.DELETE: CallKind.DELETE,
}


#: Leases that may still be saved.
EXTENDABLE = frozenset({LeaseStatus.OWNED, LeaseStatus.EXPIRED, LeaseStatus.REFUSED})


def next_action(lease: Lease) -> Action | None:
    """Return what the lease needs next, or None when it only waits for its owner."""
    extendable = lease.terms.extend and lease.status in EXTENDABLE
    if lease.goal is Goal.HOLD:
        return Action.EXTEND if extendable else None
    if lease.goal is Goal.RELEASE:
        return Action.RELEASE
    # A delete that SQS did not take is tried again, and the lease kept meanwhile: unless the
    # queue refuses extensions, as the delete must not wait for a probe.
    extendable = extendable and lease.status is not LeaseStatus.REFUSED
    if lease.attempts and extendable and lease.extend_at < lease.end_at:
        return Action.EXTEND
    return Action.DELETE


def due_time(lease: Lease, action: Action) -> float:
    """Return when that action is due, in monotonic seconds."""
    return lease.extend_at if action is Action.EXTEND else lease.end_at


def urgency(lease: Lease) -> float:
    """Return the rank of a lease among those that are due; lower goes first.

    An extension ranks by its expiry, so that a retry keeps its place. A release or a
    delete ranks by the moment it is due, and so goes before the extensions that are not
    yet due then; a retry lines up again behind those that wait for their first try.
    """
    if next_action(lease) is Action.EXTEND:
        return lease.expires_at - lease.terms.threshold
    return lease.end_at


def may_be_saved(lease: Lease, now: float) -> bool:
    """Return whether a late extension of an expired lease does more good than harm."""
    timeout = lease.terms.visibility_timeout
    # For less than it was received for, it would cut short the lease of the message's next
    # owner, if it has one: on a standard queue a stale handle still counts.
    is_cut = 0 < policy.next_timeout(lease, now) < timeout
    # A message that is being deleted is done: no other worker needs it.
    may_be_late = lease.terms.extend_late or lease.goal is Goal.DELETE
    return may_be_late and now < lease.expires_at + timeout and not is_cut


def is_lost(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is not ours any more, as far as can be known."""
    return lease.status is LeaseStatus.LOST or (
        # The lease becomes so with its next extension, which may wait for calls that hang.
        now >= lease.expires_at
        and next_action(lease) is Action.EXTEND
        and not may_be_saved(lease, now)
    )


def is_ours(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is ours for now, as far as is known."""
    return lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED) and now < lease.expires_at


def is_confirmed(lease: Lease | None, now: float) -> bool | None:
    """Return whether SQS has confirmed that the message is ours; None while no answer is there.

    True for one that is not extended, as there is nothing to wait for.
    """
    if lease is None or lease.goal is not Goal.HOLD:
        return False
    if lease.status is LeaseStatus.REFUSED or not lease.terms.extend:
        return True
    if lease.extensions or lease.status is not LeaseStatus.OWNED:
        return lease.is_exclusive and is_ours(lease, now)
    return None


def entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for the next action, or None where there is nothing to ask for."""
    action = next_action(lease)
    if action is None:
        return None
    if action is Action.EXTEND:
        timeout = policy.next_timeout(lease, now)
        if not timeout:
            return None
        return Entry(lease, lease.receipt_handle, action, timeout, lease.limit)
    if action is Action.DELETE:
        return Entry(lease, lease.receipt_handle, action)
    # What is left of the delay: a try may come later, and the message is to be back in time.
    left = lease.release_delay - max(0.0, now - lease.asked_at)
    delay = policy.cut_release_delay(lease, left, now)
    return Entry(lease, lease.receipt_handle, action, delay)


def early_entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for a lease that is not due yet, where it may join a call early."""
    if lease.is_isolated or now >= lease.expires_at:
        return None
    if lease.last_timeout > lease.terms.visibility_timeout:
        # It is hidden for longer than it would ask for: there is nothing to win yet.
        return None
    if lease.attempts and next_action(lease) is not Action.EXTEND:
        # It pauses because SQS asked it to, or refused.
        return None
    return entry_for(lease, now)

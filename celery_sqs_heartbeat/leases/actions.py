"""The next action for a lease, and the entry of a call that performs it."""

from __future__ import annotations

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import CallKind, Entry
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus

CALL_KIND = {
    Action.EXTEND: CallKind.CHANGE_VISIBILITY,
    Action.RELEASE: CallKind.CHANGE_VISIBILITY,
    Action.DELETE: CallKind.DELETE,
}


#: The statuses of leases that an extension may still save.
EXTENDABLE = frozenset({LeaseStatus.OWNED, LeaseStatus.EXPIRED, LeaseStatus.REFUSED})


def next_action(lease: Lease) -> Action | None:
    """Return the next action for the lease, or None while it only waits for its owner."""
    extendable = lease.terms.extend and lease.status in EXTENDABLE
    if lease.goal is Goal.HOLD:
        return Action.EXTEND if extendable else None
    if lease.goal is Goal.RELEASE:
        return Action.RELEASE
    # A delete that failed is tried again, and the lease is extended in the meantime. Not if the
    # queue refuses extensions: the delete must not wait for a probe.
    extendable = extendable and lease.status is not LeaseStatus.REFUSED
    if lease.attempts and extendable and lease.extend_at < lease.end_at:
        return Action.EXTEND
    return Action.DELETE


def due_time(lease: Lease, action: Action) -> float:
    """Return when an action is due, in monotonic seconds."""
    return lease.extend_at if action is Action.EXTEND else lease.end_at


def urgency(lease: Lease) -> float:
    """Return the rank of a lease among those that are due. The lowest goes first.

    An extension ranks by its expiry, so a retry keeps its place. A release or a delete ranks
    by the moment it is due, so it goes before extensions that become due later. Its retry
    ranks behind leases that wait for their first try.
    """
    if next_action(lease) is Action.EXTEND:
        return lease.expires_at - lease.terms.threshold
    return lease.end_at


def may_be_saved(lease: Lease, now: float) -> bool:
    """Return whether a late extension of an expired lease does more good than harm."""
    timeout = lease.terms.visibility_timeout
    # An extension shorter than the visibility timeout would shorten the lease of the message's
    # next owner, if there is one. Standard queues still accept a stale handle.
    is_cut = 0 < policy.next_timeout(lease, now) < timeout
    # The task of a message that is being deleted has ended: no other worker needs the message.
    may_be_late = lease.terms.extend_late or lease.goal is Goal.DELETE
    return may_be_late and now < lease.expires_at + timeout and not is_cut


def is_lost(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is no longer ours, as far as we know."""
    return lease.status is LeaseStatus.LOST or (
        # Its status becomes LOST only at its next extension, which may wait for hanging calls.
        now >= lease.expires_at
        and next_action(lease) is Action.EXTEND
        and not may_be_saved(lease, now)
    )


def is_ours(lease: Lease, now: float) -> bool:
    """Return whether the message of a lease is ours now, as far as we know."""
    return lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED) and now < lease.expires_at


def is_confirmed(lease: Lease | None, now: float) -> bool | None:
    """Return whether SQS has confirmed that the message is ours; None before its answer.

    True for a message that is not extended, as there is nothing to wait for.
    """
    if lease is None or lease.goal is not Goal.HOLD:
        return False
    if lease.status is LeaseStatus.REFUSED or not lease.terms.extend:
        return True
    if lease.extensions or lease.status is not LeaseStatus.OWNED:
        return lease.is_exclusive and is_ours(lease, now)
    return None


def entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for the next action, or None if there is no call to make."""
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
    # The rest of the delay: this may be a retry, and the message must become visible on time.
    left = lease.release_delay - max(0.0, now - lease.asked_at)
    delay = policy.cut_release_delay(lease, left, now)
    return Entry(lease, lease.receipt_handle, action, delay)


def early_entry_for(lease: Lease, now: float) -> Entry | None:
    """Return the entry for a lease that is not due yet, or None if it can't join a call early."""
    if lease.is_isolated or now >= lease.expires_at:
        return None
    if lease.last_timeout > lease.terms.visibility_timeout:
        # Its message is hidden for longer than an extension would hide it: too early to extend.
        return None
    if lease.attempts and next_action(lease) is not Action.EXTEND:
        # It pauses after a failed, throttled or refused try.
        return None
    return entry_for(lease, now)

"""The invariants, checked on what one worker's keeper sends and believes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from celery_sqs_heartbeat.leases.calls import MAX_BATCH_ENTRIES, Call, Outcome
from celery_sqs_heartbeat.leases.lease import (
    MAX_VISIBILITY_SECONDS,
    Action,
    Goal,
    Lease,
    LeaseStatus,
)
from tests.simulation.truth import MessageTruth, Violation

#: After such an answer, or none, a release may have been done.
MAY_BE_DONE = frozenset({Outcome.DONE, Outcome.UNSURE, Outcome.UNKNOWN})
#: Two clocks that are added up in another order differ by less.
EPSILON = 1e-6


class CallRules:
    """Watches every call of a worker's keepers from its sending to its answer."""

    def __init__(self) -> None:
        self._released: set[str] = set()
        #: Whose release may have been done.
        self._given_back: set[str] = set()
        self._deletes: dict[str, int] = {}

    def sent(self, call: Call, now: float) -> None:
        """Check a call that is about to be sent; `now` on the keeper's clock."""
        entries = call.entries
        handles = [entry.receipt_handle for entry in entries]
        if not 1 <= len(entries) <= MAX_BATCH_ENTRIES or len(set(handles)) != len(handles):
            raise Violation(f"5: a batch of {handles}")
        if {entry.lease.queue_url for entry in entries} != {call.queue_url}:
            raise Violation("5: a batch of several queues")
        for entry in entries:
            handle, lease = entry.receipt_handle, entry.lease
            if entry.action is Action.EXTEND:
                if handle in self._released:
                    raise Violation(f"3: {handle} is extended after its release was sent")
                if self._deletes.get(handle):
                    raise Violation(f"3: {handle} is extended while its delete is under way")
                if not 1 <= entry.timeout <= MAX_VISIBILITY_SECONDS:
                    raise Violation(f"4: an extension by {entry.timeout} s")
                if now + entry.timeout <= lease.expires_at:
                    raise Violation(f"4: {handle} is shortened")
                if now + entry.timeout > lease.received_at + MAX_VISIBILITY_SECONDS:
                    raise Violation(f"4: {handle} would be held past 12 h after its receive")
            elif entry.action is Action.RELEASE:
                if handle in self._given_back:
                    raise Violation(f"10: {handle} is released again")
                self._released.add(handle)
            else:
                self._deletes[handle] = self._deletes.get(handle, 0) + 1

    def leaves(self, call: Call, now: float) -> None:
        """Check a call that is sent now, which may be later than it was planned."""
        for entry in call.entries:
            if entry.action is Action.RELEASE and now >= entry.lease.expires_at:
                raise Violation(f"{entry.receipt_handle} is released too late")

    def answered(self, call: Call, outcomes: Sequence[Outcome]) -> None:
        """Note that a call is over."""
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            if entry.action is Action.DELETE:
                self._deletes[entry.receipt_handle] -= 1
            elif entry.action is Action.RELEASE and outcome in MAY_BE_DONE:
                self._given_back.add(entry.receipt_handle)


def check_belief(
    lease: Lease, truth: MessageTruth, drift: float, visible_at: float = math.inf
) -> None:
    """Check that a lease is never believed to last longer than it does.

    Args:
        drift: Seconds that the worker's clock has missed while its machine was suspended.
        visible_at: When a call that arrives now ends it, if one does.
    """
    message = truth.message
    if (
        message is None
        # Its release may have taken effect, when a call that was given up is answered.
        or (lease.goal is Goal.RELEASE and lease.pending is not None)
        or lease.status is not LeaseStatus.OWNED
        # Of a receive whose timeout is not known, nothing is believed before an extension.
        or not lease.last_timeout
        # Someone else may have it, as the lease itself says.
        or not lease.is_exclusive
        or lease.receipt_handle != message.handle
        or truth.excuses & {"stale handle", "late arrival", "too late", "suspend", "twice"}
    ):
        return
    visible_at = min(visible_at, message.visible_at)
    if lease.expires_at + drift > visible_at + EPSILON:
        raise Violation(
            f"6: {lease.message_id} is believed ours until {lease.expires_at + drift:.3f}, but "
            f"is visible from {visible_at:.3f}"
        )

"""The invariants, checked against the calls and the beliefs of one worker's keeper."""

from __future__ import annotations

import math
from collections.abc import Sequence

from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.service import SQS
from tests.simulation.truth import MessageTruth, Violation

#: After one of these answers, or without an answer, a release may have taken effect.
MAY_BE_DONE = frozenset({Outcome.DONE, Outcome.UNSURE, Outcome.UNKNOWN})
#: Clocks that add up the same times in a different order differ by less than this.
EPSILON = 1e-6


class CallRules:
    """Checks every call of a worker's keepers, from the moment it is sent to its answer."""

    def __init__(self) -> None:
        self._released: set[str] = set()
        #: The handles whose release may have taken effect.
        self._given_back: set[str] = set()
        self._deletes: dict[str, int] = {}

    def sent(self, call: Call, now: float) -> None:
        """Check a call that is about to be sent. `now` is a time of the keeper's clock."""
        entries = call.entries
        handles = [entry.receipt_handle for entry in entries]
        if not 1 <= len(entries) <= SQS.most_changed or len(set(handles)) != len(handles):
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
                if not 1 <= entry.timeout <= SQS.longest_timeout:
                    raise Violation(f"4: an extension by {entry.timeout} s")
                if now + entry.timeout <= lease.expires_at:
                    raise Violation(f"4: {handle} is shortened")
                if now + entry.timeout > lease.received_at + SQS.longest_hold:
                    raise Violation(f"4: {handle} would be held past 12 h after its receive")
            elif entry.action is Action.RELEASE:
                if handle in self._given_back:
                    raise Violation(f"10: {handle} is released again")
                self._released.add(handle)
            else:
                self._deletes[handle] = self._deletes.get(handle, 0) + 1

    def leaves(self, call: Call, now: float) -> None:
        """Check a call that is sent now, possibly later than planned."""
        for entry in call.entries:
            if entry.action is Action.RELEASE and now >= entry.lease.expires_at:
                raise Violation(f"{entry.receipt_handle} is released too late")

    def answered(self, call: Call, outcomes: Sequence[Outcome]) -> None:
        """Note that a call was answered."""
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            if entry.action is Action.DELETE:
                self._deletes[entry.receipt_handle] -= 1
            elif entry.action is Action.RELEASE and outcome in MAY_BE_DONE:
                self._given_back.add(entry.receipt_handle)


def check_belief(
    lease: Lease, truth: MessageTruth, drift: float, visible_at: float = math.inf
) -> None:
    """Check that the keeper never believes that a lease lasts longer than it does.

    Args:
        drift: Seconds that the worker's clock has missed while its machine was suspended.
        visible_at: When a call that arrives now ends the lease, if one does.
    """
    message = truth.message
    if (
        message is None
        # Its release may have taken effect by the time a call that was given up is answered.
        or (lease.goal is Goal.RELEASE and lease.pending is not None)
        or lease.status is not LeaseStatus.OWNED
        # If a receive's timeout is unknown, the keeper believes nothing before an extension.
        or not lease.last_timeout
        # The lease itself says that someone else may have the message.
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

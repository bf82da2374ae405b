"""The invariants, checked against the calls, the beliefs and the events of workers' keepers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import SQS, Action, Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.receiving.intake import CLOSED
from tests.simulation.truth import LOST, MessageTruth, Violation
from tests.support.board import Board

if TYPE_CHECKING:
    from tests.simulation.calls import Host
    from tests.simulation.worker import SimulatedWorker
    from tests.simulation.world import World

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
        if not 1 <= len(entries) <= SQS.most_entries or len(set(handles)) != len(handles):
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


class EventRules:
    """Receives every event of one keeper."""

    def __init__(self, host: Host) -> None:
        self._worker = host.worker
        self._world = host.worker.world
        self._board = host.board

    def note(self, event: Event) -> None:
        """Check an event, and note the duplicates or losses that it explains."""
        truth = self._world.truth[event.message_id]
        self._world.log(self._worker.name, event.kind.value, event.message_id)
        if event.kind is EventKind.MESSAGE_DELETED:
            self._check_deleted(event)
            if event.cause:
                self._world.receives.explain(event.message_id, self._worker.name, event.cause)
        if event.kind is EventKind.LEASE_CAPPED:
            truth.excuses.add("capped")
            self._check_capped(event)
        elif event.kind in (EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST):
            truth.excuses.add(event.kind.value)
            if event.kind is EventKind.LEASE_LOST and self._world.order.is_kept:
                # It may have waited in the keeper for another of its group.
                self._world.receives.explain(event.message_id, self._worker.name, LOST)
        elif event.kind in (EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING):
            cause = event.cause or "released without a cause"
            self._world.receives.explain(event.message_id, self._worker.name, cause)
            *_, last = truth.receives.values()
            last.is_cold = not self._worker.is_up or (last.is_taken and cause == CLOSED)

    def _check_deleted(self, event: Event) -> None:
        # A standard queue answers a stale handle as if it had deleted the message.
        if event.outcome is not Outcome.DONE and not self._world.truth[event.message_id].is_deleted:
            self._world.fail(f"1: {event.message_id} is reported as deleted, but is in its queue")

    def _check_capped(self, event: Event) -> None:
        for lease in self._board.leases():
            if lease.message_id == event.message_id and self._world.profile.is_calm:
                left = policy.lease_end(lease) - self._worker.now()
                if left > lease.terms.visibility_timeout:
                    self._world.fail(f"4: {event.message_id} is capped {left:.0f} s too early")


class CallJudge:
    """Notes what the calls of a world's keepers excuse, and checks what they do to messages."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sent(self, worker: SimulatedWorker, call: Call) -> None:
        """Note a keeper's call."""
        if call.kind is CallKind.CHANGE_VISIBILITY:
            self._world.tally.visibility_calls += 1
        for entry in call.entries:
            self._world.log(worker.name, f"sends {entry.action.value}", entry.lease.message_id)
            # In the worst case each release is a separate call.
            self._world.tally.visibility_bound += entry.action is Action.RELEASE

    def leaves(self, call: Call) -> None:
        """Check a call that is sent now."""
        for entry in call.entries:
            self._check_owner(entry)

    def _check_owner(self, entry: Entry) -> None:
        """Check that no message is released that someone else has received since."""
        truth = self._world.truth[entry.lease.message_id]
        message = truth.message
        if (
            entry.action is Action.RELEASE
            and message is not None
            and message.handle != entry.receipt_handle
            and not truth.excuses & {"suspend", "twice", "cut short by a stale handle"}
        ):
            self._world.fail(f"{truth.message_id} is released under its new owner")

    def arrives(
        self, worker: SimulatedWorker | None, call: Call, is_over: bool, *, is_known: bool
    ) -> None:
        """Note the effect of a call on messages that it should not touch.

        Args:
            worker: The worker that made the call; None if its process has ended.
            is_known: Whether the keeper that made it still lives. Another one knows of its releases
                only, because they are what the worker sees.
        """
        now = self._world.clock()
        for entry in call.entries:
            truth = self._world.truth[entry.lease.message_id]
            message = truth.message
            if message is None or entry.action is Action.DELETE:
                continue
            if message.handle != entry.receipt_handle:
                lease = worker and worker.keeping.find(message.handle)
                if worker and lease and (is_known or entry.action is Action.RELEASE):
                    truth.is_overtaken = True
                    self._arrives_after_redelivery(worker, entry, lease)
                    continue
                truth.excuses.add("stale handle")
                # That can happen if the queue's timeout was longer for the new owner.
                if now + entry.timeout < message.visible_at:
                    truth.excuses.add("cut short by a stale handle")
            elif is_over:
                truth.excuses.add("late arrival")
            elif now >= message.visible_at:
                truth.excuses.add("too late")
            elif (
                entry.action is Action.EXTEND
                and now + entry.timeout < message.visible_at
                # If the receive requested no timeout because none was known, the first extension
                # can't know better.
                and entry.lease.last_timeout
                # A call that was given up may arrive after a later one was sent, and a call by a
                # stale handle hides the message for longer than its owner knows.
                and not truth.excuses & {"late arrival", "extend failed", "twice", "stale handle"}
                and not truth.is_overtaken
            ):
                self._world.fail(f"4: {truth.message_id} is shortened at SQS")

    def _arrives_after_redelivery(
        self, worker: SimulatedWorker, entry: Entry, lease: Lease
    ) -> None:
        """Check the effect of a call on a message that the same worker has received again since."""
        truth = self._world.truth[entry.lease.message_id]
        message = truth.message
        self._world.disturb(worker.name, f"a redelivery overtakes its {entry.action.value}")
        if message and not truth.queue.is_fifo and self._world.clock() < message.visible_at:
            check_belief(lease, truth, worker.suspended, self._world.clock() + entry.timeout)

    def settled(
        self, worker: SimulatedWorker, board: Board, call: Call, outcomes: Sequence[Outcome]
    ) -> None:
        """Check the keeper's beliefs after an answer."""
        for entry, outcome in zip(call.entries, outcomes, strict=True):
            truth = self._world.truth[entry.lease.message_id]
            self._world.log(worker.name, f"{entry.action.value}: {outcome.value}", truth.message_id)
            if outcome is Outcome.MALFORMED:
                self._world.fail(f"5: SQS calls {entry} malformed")
            if outcome is not Outcome.DONE:
                truth.excuses.add(f"{entry.action.value} failed")
            if board.holds(entry.lease):
                check_belief(entry.lease, truth, worker.suspended)
        self.note_refused(board)
        if call.kind is CallKind.DELETE and Outcome.DONE not in outcomes:
            self._note_waiting(board, call.queue_url)

    def check_known(self, worker: SimulatedWorker, call: Call) -> None:
        """Check what a worker itself knows of the leases in an answered call."""
        for entry in call.entries:
            lease = worker.keeper.find(entry.receipt_handle)
            if lease is not None and lease.goal is Goal.HOLD:
                check_belief(lease, self._world.truth[lease.message_id], worker.suspended)

    def note_refused(self, board: Board) -> None:
        """Note which leases a keeper can't extend because their queue refuses extensions."""
        for lease in board.leases():
            if lease.status is LeaseStatus.REFUSED:
                self._world.truth[lease.message_id].excuses.add("refused")

    def _note_waiting(self, board: Board, queue_url: str) -> None:
        """Note which deletes wait behind failing ones, possibly beyond their leases."""
        for lease in board.leases():
            if lease.goal is Goal.DELETE and lease.queue_url == queue_url:
                self._world.truth[lease.message_id].excuses.add("delete delayed")

    def unanswered(self, call: Call) -> None:
        """Note that a keeper no longer waits for a call."""
        for entry in call.entries:
            self._world.truth[entry.lease.message_id].excuses.add(f"{entry.action.value} failed")

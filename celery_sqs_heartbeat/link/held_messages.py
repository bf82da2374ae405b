"""The worker's own record of the messages it has, and of what it has said about each.

The keeper decides about messages. What it has done so far, the worker reads in the table. With this
record a new keeper continues when one dies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from celery_sqs_heartbeat.current.table import Flag, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import GOING_BACK, NOT_DELIVERED, Event, Outcome
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.received_as import CAPACITY, RecentKeys

_STATUSES = {
    Mark.HELD: LeaseStatus.OWNED,
    Mark.CAPPED: LeaseStatus.CAPPED,
    Mark.REFUSED: LeaseStatus.REFUSED,
    Mark.LOST: LeaseStatus.LOST,
}

_UNKNOWN = Record(Mark.UNKNOWN)


@dataclass(eq=False, slots=True, kw_only=True)
class HeldMessage:
    """A message that the worker holds, or whose end its keeper has not confirmed.

    Attributes:
        table: Where the keeper writes what SQS has confirmed.
        place: Its place in the table; None if it has no place.
        pid: The process that runs its task; None before the task starts.
        is_delivered: Whether the worker has got it. If not, only its handle is known here, for the
            case that the keeper that has it dies.
        message: The message as SQS returned it, if this is its last receive; see `is_sent_again`.
        seen: Its bytes in the table when the lease was last updated from it.
    """

    lease: Lease
    table: Table = field(repr=False)
    place: int | None = None
    pid: int | None = None
    is_delivered: bool = True
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    seen: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """Identifies it on the link: the receipt handle that it had first."""
        return self.lease.handles[0]

    def refresh(self) -> Lease:
        """Update the lease from the table, and return it."""
        lease = self.lease
        if self.place is None:
            return lease
        written = self.table.written(self.place)
        if written == self.seen:
            # Nothing has changed. To look up the record would take six times as long.
            return lease
        record = self.record()
        if record.mark is Mark.UNKNOWN:
            return lease
        self.place = self.table.place_of(key_of(self.name))
        # The record may have changed between the two reads.
        self.seen = written if Record.unpack(written) == record else b""
        lease.status = _STATUSES.get(record.mark, lease.status)
        lease.expires_at = record.expires_at
        lease.hidden_until = max(lease.hidden_until, record.hidden_until)
        lease.is_exclusive = bool(record.flags & Flag.CERTAIN)
        lease.has_place = not record.flags & Flag.LEFT_GROUP
        lease.extensions = int(bool(record.flags & Flag.EXTENDED))
        if lease.extensions:
            lease.last_timeout = lease.terms.visibility_timeout
        return lease

    def record(self) -> Record:
        """Return what the keeper has written about it.

        It is unknown if it has no place, or if its keeper was killed while it wrote the record.
        """
        found = None if self.place is None else self.table.find(key_of(self.name))
        return found or _UNKNOWN

    def is_over(self) -> bool:
        """Return whether the keeper is done with it."""
        return bool(self.record().flags & Flag.OVER)


class HeldMessages:
    """The messages of one worker, by key, by receipt handle and by name.

    Not thread-safe. Time is always an argument, in monotonic seconds.

    Args:
        table: Where the keeper writes what SQS has confirmed, and its ticks.

    Attributes:
        finished: The messages whose task has succeeded.
        disowned: The receipt handles under which messages were given up.
        ending: How many deletes and releases are not confirmed yet.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.finished = RecentKeys[tuple[str, str]]()
        self.ending = 0
        self._by_key: dict[tuple[str, str], HeldMessage] = {}
        self._by_handle: dict[str, HeldMessage] = {}
        self._by_name: dict[str, HeldMessage] = {}
        self.disowned = RecentKeys[str]()
        #: Releases whose outcome is unknown: the last handles of their messages, and when their
        #: leases were to expire.
        self._unanswered: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def leases(self) -> Iterator[Lease]:
        """Yield the leases in their current state."""
        for held in self._by_key.values():
            yield held.refresh()

    def get(self, receipt_handle: str) -> HeldMessage | None:
        """Return the held message that has, or once had, that handle, in its current state."""
        held = self._by_handle.get(receipt_handle)
        if held is not None:
            held.refresh()
        return held

    def keep(self, lease: Lease) -> None:
        """Note a message that the keeper has not handed over yet, or has received again.

        Of one that is known, the lease continues under another handle.
        """
        held = self._by_name.get(lease.handles[0])
        if held is None:
            held = HeldMessage(lease=lease, table=self.table, is_delivered=False)
            self._by_name[held.name] = held
        elif (handle := lease.receipt_handle) not in held.lease.handles:
            known = held.lease
            known.add_handle(handle)
            known.receipt_handle, known.receive_count = handle, lease.receive_count
            known.last_timeout, known.received_at = lease.last_timeout, lease.received_at
            if self._by_key.get(known.key) is held:
                self._by_handle[handle] = held

    def add(self, lease: Lease, message: Mapping[str, Any]) -> HeldMessage:
        """Note a message that the keeper has handed over."""
        kept = self._by_name.get(lease.handles[0])
        if kept is not None and len(kept.lease.handles) > len(lease.handles):
            # It was received again while it was on its way.
            lease = kept.lease
        held = HeldMessage(
            lease=lease,
            table=self.table,
            place=self.table.place_of(key_of(lease.handles[0])),
            message=message if lease.is_last_receive else None,
        )
        if (former := self._by_key.get(lease.key)) is not None:
            # It was released, and received again.
            self._forget(former)
        self._by_key[lease.key] = self._by_name[held.name] = held
        self._by_handle.update(dict.fromkeys(lease.handles, held))
        return held

    def done(self, receipt_handle: str, now: float) -> HeldMessage | None:
        """Note that a message must be deleted. Return the held message, if it is known."""
        held = self._by_handle.get(receipt_handle)
        if held is not None:
            self.finished.add(held.lease.key)
            if held.lease.goal is Goal.HOLD:
                self._set_goal(held, Goal.DELETE, now)
        return held

    def release(
        self, receipt_handle: str, delay: float, now: float, cause: str
    ) -> tuple[HeldMessage | None, bool]:
        """Note that a message must become visible again, in `delay` seconds.

        Return the held message, if it is known, and whether that is new.
        """
        held = self.get(receipt_handle)
        if held is None or held.lease.goal is not Goal.HOLD:
            return held, False
        lease = held.lease
        lease.release_delay = policy.cut_release_delay(lease, delay, now)
        lease.cause = cause
        self._set_goal(held, Goal.RELEASE, now)
        return held, True

    def let_expire(self, receipt_handle: str) -> HeldMessage | None:
        """Forget a message. Return it, if it was known."""
        held = self._by_handle.get(receipt_handle)
        if held is not None:
            self._forget(held)
        return held

    def disown(self, receipt_handle: str) -> HeldMessage | None:
        """Forget a message, but remember its handles.

        So a late ack is not mistaken for the ack of a message without a lease, and does not delete
        another worker's message.
        """
        held = self.let_expire(receipt_handle)
        for handle in held.lease.handles if held is not None else ():
            self.disowned.add(handle)
        return held

    def end(self, name: str) -> None:
        """Note that the keeper is done with a message."""
        held = self._by_name.pop(name, None)
        if held is not None:
            self._forget(held)
            self.ending -= held.lease.goal is not Goal.HOLD

    def note_event(self, event: Event) -> None:
        """Note an event of a lease: a release that SQS may still make."""
        if event.kind in GOING_BACK and event.outcome is Outcome.UNKNOWN:
            held_until = event.at + event.slack
            key = (event.queue_url, event.message_id)
            self._note_unanswered(key, event.receipt_handle, held_until)

    def memory(self) -> list[tuple[str, Sequence[Any]]]:
        """Return what a new keeper must know of messages without a lease, in messages for it."""
        known = {"finished": [*self.finished], "unanswered": [*self._unanswered.items()]}
        return [(kind, keys) for kind, keys in known.items() if keys]

    def to_resume(self, now: float) -> list[tuple[HeldMessage, bool]]:
        """Return the held messages with which a new keeper must continue, in their current state.

        With each, return whether a release of it may have been sent. Messages are left out, and
        end here, if the worker has dropped them, or if the last keeper was done with them. Those
        that it had not handed over are released: their bodies died with it.
        """
        for held in list(self._by_name.values()):
            if not held.is_delivered:
                held.place = self.table.place_of(key_of(held.name))
            is_dropped = held.is_delivered and self._by_key.get(held.lease.key) is not held
            is_ending = held.lease.goal is not Goal.HOLD or not held.is_delivered
            if is_dropped or (is_ending and held.is_over()):
                self.end(held.name)
        resumed = [(each, self._resumed(each, now)) for each in self._by_name.values()]
        for held, was_releasing in resumed:
            if was_releasing:
                # The keeper after the new one must know it, too.
                lease = held.lease
                self._note_unanswered(lease.key, lease.receipt_handle, lease.expires_at)
        return resumed

    def _resumed(self, held: HeldMessage, now: float) -> bool:
        """Update a held message for a new keeper. Return whether it may have been released."""
        lease, record = held.refresh(), held.record()
        may_be_releasing = record.mark is Mark.UNKNOWN or bool(record.flags & Flag.RELEASING)
        if held.place is None:
            # What the last keeper knew of it is lost: maybe that it is someone else's by now.
            lease.is_exclusive = False
        if lease.goal is Goal.HOLD and record.flags & (Flag.RELEASING | Flag.OVER):
            # The keeper released it by itself, and the worker had not learned it.
            self._set_goal(held, Goal.RELEASE, now)
            return True
        if not held.is_delivered and lease.goal is Goal.HOLD:
            lease.cause = NOT_DELIVERED
            self._set_goal(held, Goal.RELEASE, now)
        if lease.goal is not Goal.RELEASE:
            return False
        if may_be_releasing:
            # The release's outcome stays unknown, whatever end the new keeper reports.
            return True
        if lease.key in self.finished:
            # It was released while its task ran on, and the task still succeeded.
            lease.goal = Goal.DELETE
            # The release may have been sent: no extension may follow it.
            lease.terms = replace(lease.terms, extend=False)
        return False

    def _note_unanswered(
        self, key: tuple[str, str], receipt_handle: str, held_until: float
    ) -> None:
        self._unanswered[key] = (receipt_handle, held_until)
        while len(self._unanswered) > CAPACITY:
            self._unanswered.popitem(last=False)

    def _set_goal(self, held: HeldMessage, goal: Goal, now: float) -> None:
        held.lease.set_goal(goal, now, due=now)
        self.ending += 1

    def _forget(self, held: HeldMessage) -> None:
        if self._by_key.get(held.lease.key) is held:
            del self._by_key[held.lease.key]
        for handle in held.lease.handles:
            if self._by_handle.get(handle) is held:
                del self._by_handle[handle]

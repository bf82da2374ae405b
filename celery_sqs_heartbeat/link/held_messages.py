"""The worker's own record of the messages it holds.

With it the worker decides without asking its keeper whether a message is new, runs here or has
finished here. Only the keeper knows what SQS has confirmed: the worker reads that in the table.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from celery_sqs_heartbeat.current.places import Places
from celery_sqs_heartbeat.current.table import Record, Table
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.group_order import GroupOrder
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs, receipt_of
from celery_sqs_heartbeat.leases.recent import CAPACITY, RecentKeys
from celery_sqs_heartbeat.leases.stale_calls import StaleCalls
from celery_sqs_heartbeat.link.held_message import HeldMessage


class HeldMessages:
    """The messages of one worker, by key, by receipt handle and by number.

    Not thread-safe. Time is always an argument, in monotonic seconds.

    Methods that may stop a message group return the messages that must be released because of it,
    in the order in which to release them; see `GroupOrder`.

    Args:
        table: Where the keeper writes what SQS has confirmed, and its ticks.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._places = Places(table)
        self._by_key: dict[tuple[str, str], HeldMessage] = {}
        self._by_handle: dict[str, HeldMessage] = {}
        self._by_number: dict[int, HeldMessage] = {}
        self._finished = RecentKeys[tuple[str, str]]()
        self._disowned = RecentKeys[str]()
        self._stale_calls = StaleCalls()
        self._order = GroupOrder()
        #: By number: the releases whose outcome the keeper has not reported yet.
        self._releases: OrderedDict[int, Call] = OrderedDict()
        self._numbers = itertools.count(1)
        self._ending = 0

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._ending

    def held_messages(self) -> Iterable[HeldMessage]:
        """Return every held message, including those whose end is not confirmed."""
        return self._by_number.values()

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

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return receipt_handle in self._disowned

    def receive(self, receive: Receive, terms: LeaseTerms) -> tuple[ReceivedAs, HeldMessage | None]:
        """Note a receive. Return its kind, and the held message to report to the keeper."""
        held = self._by_key.get(receive.key)
        lease = held.lease if held is not None else None
        receipt = receipt_of(
            receive, lease, is_finished=receive.key in self._finished, stale_calls=self._stale_calls
        )
        if receipt is ReceivedAs.LAPSED:
            if held is not None and receive.has_lapsed:
                held.is_certain = held.lease.is_exclusive = False
                return receipt, held
            return receipt, None
        if receipt is ReceivedAs.RELEASED:
            return receipt, None
        if held is not None and receive.is_older_than(held.lease):
            held.lease.add_handle(receive.receipt_handle)
            self._by_handle[receive.receipt_handle] = held
            return receipt, None
        is_certain = not self._stale_calls.releases(
            receive.key, receive.receipt_handle, receive.sent_at, receive.arrived_at
        )
        if held is None or held.lease.goal is Goal.RELEASE:
            if held is not None:
                self._forget(held)
            held = self._begin(receive, terms)
            if receipt is ReceivedAs.FINISHED:
                self._set_goal(held, Goal.DELETE, receive.arrived_at)
        else:
            held.receives += 1
        lease = held.lease
        receive.describe(lease)
        self._order.add(lease)
        _take_receive(lease, receive)
        held.is_certain = lease.is_exclusive = is_certain
        self._by_handle[receive.receipt_handle] = held
        if held.receives == 1:
            held.place = self._places.take(receive.receipt_handle, Record.of(lease, receives=1))
            held.note_written()
        return receipt, held

    def done(self, receipt_handle: str, now: float) -> HeldMessage | None:
        """Note that a message must be deleted. Return the held message, if it is known."""
        held = self._by_handle.get(receipt_handle)
        if held is not None:
            self._finished.add(held.lease.key)
            if held.lease.goal is Goal.HOLD:
                self._set_goal(held, Goal.DELETE, now)
        return held

    def release(
        self, receipt_handle: str, delay: float, now: float, cause: str
    ) -> tuple[HeldMessage | None, list[HeldMessage]]:
        """Note that a message must become visible again.

        Return the held message, if it is known, and all messages to release because of it.

        Args:
            delay: The seconds until it becomes visible.
        """
        held = self.get(receipt_handle)
        if held is None or held.lease.goal is not Goal.HOLD:
            return held, []
        # This comes first: if it raises, no group may have been stopped.
        seconds = policy.cut_release_delay(held.lease, delay, now)
        self._order.stop_behind(held.lease)
        return held, [*self._release_stopped(now), self._release(held, seconds, now, cause)]

    def let_expire(
        self, receipt_handle: str, now: float
    ) -> tuple[HeldMessage | None, list[HeldMessage]]:
        """Forget a message. Return it, if it was known, and the messages to release."""
        held = self._by_handle.get(receipt_handle)
        if held is None:
            return None, []
        self._forget(held)
        return held, self._release_stopped(now)

    def disown(
        self, receipt_handle: str, now: float
    ) -> tuple[HeldMessage | None, list[HeldMessage]]:
        """Forget a message, but remember its handles; see `LeaseBook.disown`."""
        held, behind = self.let_expire(receipt_handle, now)
        for handle in held.lease.handles if held is not None else ():
            self._disowned.add(handle)
        return held, behind

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""
        held = self._by_handle.get(receipt_handle)
        return held is not None and self._order.waits_behind(held.lease)

    def note_event(self, number: int, event: Event, now: float) -> list[HeldMessage]:
        """Note an event of a lease, which may have ended. Return the messages to release."""
        if event.kind in (EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING):
            self._note_release(number, event)
        held = self._by_number.get(number)
        if held is None:
            return []
        is_current = event.receipt_handle == held.lease.receipt_handle
        note = self._order.note if is_current else self._order.note_before_receive
        note(event.kind, held.lease)
        return self._release_stopped(now)

    def _note_release(self, number: int, event: Event) -> None:
        call = self._releases.pop(number, None)
        if call is not None and event.outcome is not Outcome.UNKNOWN:
            # Without an outcome, the call was never sent.
            at = -math.inf if event.outcome is None else event.at
            self._stale_calls.note_answers(call, [Outcome.DONE], at)

    def end(self, number: int, receives: int, *, is_deleted: bool, now: float) -> list[HeldMessage]:
        """Note that the keeper is done with a message. Return the messages to release.

        If the report is about an earlier receive, it changes nothing: the worker has received the
        message again since.

        Args:
            is_deleted: Whether SQS has confirmed its delete.
        """
        held = self._by_number.get(number)
        if held is None or receives < held.receives:
            return []
        self._forget(held, is_deleted=is_deleted)
        del self._by_number[number]
        self._ending -= held.lease.goal is not Goal.HOLD
        if held.lease.goal is Goal.DELETE:
            self._stale_calls.forget(held.lease.key)
        self._places.free(held.place)
        return self._release_stopped(now)

    def to_resume(self, now: float) -> list[tuple[HeldMessage, bool]]:
        """Return the held messages with which a new keeper must continue, in their current state.

        With each, return whether a release of it may have been sent. Messages are left out, and
        end here, if the worker has dropped them, if it has received them again since their
        release, or if the last keeper was done with them.
        """
        for held in list(self._by_number.values()):
            is_current = self._by_key.get(held.lease.key) is held
            is_ending = held.lease.goal is not Goal.HOLD
            if not is_current or (is_ending and held.is_over()):
                self._releases.pop(held.number, None)
                is_deleted = held.is_deleted()
                self.end(held.number, held.receives, is_deleted=is_deleted, now=now)
        return [(each, self._resumed(each, now)) for each in self._by_number.values()]

    def _resumed(self, held: HeldMessage, now: float) -> bool:
        """Update a held message for a new keeper. Return whether it may have been released."""
        lease = held.refresh()
        if lease.goal is Goal.HOLD and held.was_released():
            # The keeper released it because its group stopped, and the worker had not learned it.
            self._set_goal(held, Goal.RELEASE, now)
            return True
        if lease.goal is not Goal.RELEASE:
            return False
        if held.may_be_releasing():
            # The release's outcome stays unknown, whatever end the new keeper reports.
            self._releases.pop(held.number, None)
            return True
        if lease.key in self._finished:
            # It was released while its task ran on, and the task still succeeded.
            lease.goal = Goal.DELETE
            # The release may have been sent: no extension may follow it.
            lease.terms = replace(lease.terms, extend=False)
        return False

    def _begin(self, receive: Receive, terms: LeaseTerms) -> HeldMessage:
        lease = receive.new_lease(terms)
        held = HeldMessage(lease=lease, number=next(self._numbers), table=self.table)
        self._by_key[lease.key] = self._by_number[held.number] = held
        return held

    def _release_stopped(self, now: float) -> list[HeldMessage]:
        """Release the messages behind those that stop their groups. Return them in that order."""
        return [
            self._release(held, 0, now, cause)
            for lease, cause in self._order.take_stopped()
            if lease.goal is Goal.HOLD
            and (held := self._by_key.get(lease.key)) is not None
            and held.lease is lease
        ]

    def _release(self, held: HeldMessage, delay: int, now: float, cause: str) -> HeldMessage:
        lease = held.refresh()
        lease.release_delay = delay
        lease.cause = cause
        self._set_goal(held, Goal.RELEASE, now)
        # SQS delivers any later message of the group only after this release.
        self._order.end(lease, is_deleted=False)
        entry = Entry(lease, lease.receipt_handle, Action.RELEASE, lease.release_delay)
        call = Call(CallKind.CHANGE_VISIBILITY, lease.queue_url, (entry,), now)
        self._stale_calls.note_sent(call)
        self._releases[held.number] = call
        if len(self._releases) > CAPACITY:
            self._releases.popitem(last=False)
        return held

    def _set_goal(self, held: HeldMessage, goal: Goal, now: float) -> None:
        held.lease.set_goal(goal, now, due=now)
        self._ending += 1

    def _forget(self, held: HeldMessage, *, is_deleted: bool = False) -> None:
        self._order.end(held.lease, is_deleted=is_deleted)
        if self._by_key.get(held.lease.key) is held:
            del self._by_key[held.lease.key]
        for handle in held.lease.handles:
            if self._by_handle.get(handle) is held:
                del self._by_handle[handle]


def _take_receive(lease: Lease, receive: Receive) -> None:
    lease.status = LeaseStatus.OWNED
    lease.take_receive(
        receive.receipt_handle,
        receive_count=receive.receive_count,
        sent_at=receive.sent_at,
        hidden_until=receive.arrived_at + receive.hidden_for,
        hidden_for=receive.hidden_for,
        expires_at=policy.first_expiry(
            sent_at=receive.sent_at,
            arrived_at=receive.arrived_at,
            visibility_timeout=receive.hidden_for,
            threshold=lease.terms.threshold,
        ),
    )

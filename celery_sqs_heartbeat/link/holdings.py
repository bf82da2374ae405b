"""What a worker knows of the messages that it holds, without asking its keeper.

It decides at once what must be decided at once: whether a message is new, runs here or has
finished here. What SQS has confirmed of a lease, its keeper knows: the table says it.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from celery_sqs_heartbeat.current.places import Places
from celery_sqs_heartbeat.current.record import Record
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.group_order import GroupOrder
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms, Standing, State
from celery_sqs_heartbeat.leases.receipts import Receipt, Receive, receipt_of
from celery_sqs_heartbeat.leases.recent import CAPACITY, RecentKeys
from celery_sqs_heartbeat.leases.strays import Strays
from celery_sqs_heartbeat.link.holding import Holding
from celery_sqs_heartbeat.link.written import WrittenLeases


class Holdings:
    """The messages of one worker, by key, by receipt handle and by number.

    Not thread-safe. Time is always an argument, in monotonic seconds.

    Methods that may stop a message group return what is to be released with it, in that order; see
    `GroupOrder`.

    Args:
        table: Where the keeper writes what SQS has confirmed.
    """

    def __init__(self, table: Table) -> None:
        self._places = Places(table)
        self._written = WrittenLeases(table)
        self._by_key: dict[tuple[str, str], Holding] = {}
        self._by_handle: dict[str, Holding] = {}
        self._by_number: dict[int, Holding] = {}
        self._finished = RecentKeys[tuple[str, str]]()
        self._disowned = RecentKeys[str]()
        self._strays = Strays()
        self._order = GroupOrder()
        #: By number, the release of each whose fate the keeper has not reported.
        self._releases: OrderedDict[int, Call] = OrderedDict()
        self._numbers = itertools.count(1)
        self._ending = 0

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._ending

    def holdings(self) -> Iterable[Holding]:
        """Return every holding, those whose end is not confirmed included."""
        return self._by_number.values()

    def leases(self) -> Iterator[Lease]:
        """Yield the leases as they are now."""
        for holding in self._by_key.values():
            yield self._written.refresh(holding)

    def get(self, receipt_handle: str) -> Holding | None:
        """Return the holding that has, or once had, that handle, as it is now."""
        holding = self._by_handle.get(receipt_handle)
        if holding is not None:
            self._written.refresh(holding)
        return holding

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        return receipt_handle in self._disowned

    def receive(self, receive: Receive, terms: LeaseTerms) -> tuple[Receipt, Holding | None]:
        """Take in a receive; return what it is, and the holding that the keeper must know of."""
        holding = self._by_key.get(receive.key)
        lease = holding.lease if holding is not None else None
        receipt = receipt_of(
            receive, lease, is_finished=receive.key in self._finished, strays=self._strays
        )
        if receipt is Receipt.LAPSED:
            if holding is not None and receive.has_lapsed:
                holding.is_certain = holding.lease.certain = False
                return receipt, holding
            return receipt, None
        if receipt is Receipt.RELEASED:
            return receipt, None
        if holding is not None and receive.is_older_than(holding.lease):
            holding.lease.add_handle(receive.receipt_handle)
            self._by_handle[receive.receipt_handle] = holding
            return receipt, None
        is_certain = not self._strays.releases(
            receive.key, receive.receipt_handle, receive.sent_at, receive.arrived_at
        )
        if holding is None or holding.lease.state is State.BACK:
            if holding is not None:
                self._forget(holding)
            holding = self._begin(receive, terms)
            if receipt is Receipt.FINISHED:
                self._want(holding, State.DONE, receive.arrived_at)
        else:
            holding.receives += 1
        lease = holding.lease
        receive.describe(lease)
        self._order.add(lease)
        _take_receive(lease, receive)
        holding.is_certain = lease.certain = is_certain
        self._by_handle[receive.receipt_handle] = holding
        if holding.receives == 1:
            holding.place = self._places.take(receive.receipt_handle, Record.of(lease, receives=1))
        return receipt, holding

    def done(self, receipt_handle: str, now: float) -> Holding | None:
        """Note that a message is to be deleted; return its holding, if there is one."""
        holding = self._by_handle.get(receipt_handle)
        if holding is not None:
            self._finished.add(holding.lease.key)
            if holding.lease.state is State.HELD:
                self._want(holding, State.DONE, now)
        return holding

    def release(
        self, receipt_handle: str, delay: float, now: float, cause: str
    ) -> tuple[Holding | None, list[Holding]]:
        """Note that a message is to be visible again; return its holding, and what to release.

        Args:
            delay: After so many seconds.
        """
        holding = self.get(receipt_handle)
        if holding is None or holding.lease.state is not State.HELD:
            return holding, []
        # First: where it raises, nothing may have been stopped.
        seconds = policy.cut_release_delay(holding.lease, delay, now)
        self._order.stop_behind(holding.lease)
        return holding, [*self._release_stopped(now), self._release(holding, seconds, now, cause)]

    def drop(self, receipt_handle: str, now: float) -> tuple[Holding | None, list[Holding]]:
        """Forget a message; return its holding, if there was one, and what to release."""
        holding = self._by_handle.get(receipt_handle)
        if holding is None:
            return None, []
        self._forget(holding)
        return holding, self._release_stopped(now)

    def disown(self, receipt_handle: str, now: float) -> tuple[Holding | None, list[Holding]]:
        """Forget a message, but remember its handles; see `LeaseBook.disown`."""
        holding, behind = self.drop(receipt_handle, now)
        for handle in holding.lease.handles if holding is not None else ():
            self._disowned.add(handle)
        return holding, behind

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""
        holding = self._by_handle.get(receipt_handle)
        return holding is not None and self._order.waits_behind(holding.lease)

    def note_event(self, number: int, event: Event, now: float) -> list[Holding]:
        """Take in what has happened to a lease, which may be over for its keeper.

        Return what to release.
        """
        if event.kind in (EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING):
            self._note_release(number, event)
        holding = self._by_number.get(number)
        if holding is None:
            return []
        is_current = event.receipt_handle == holding.lease.receipt_handle
        note = self._order.note if is_current else self._order.note_before_receive
        note(event.kind, holding.lease)
        return self._release_stopped(now)

    def _note_release(self, number: int, event: Event) -> None:
        call = self._releases.pop(number, None)
        if call is not None and event.outcome is not Outcome.UNKNOWN:
            # Without an outcome it was never sent.
            at = -math.inf if event.outcome is None else event.at
            self._strays.note_answers(call, [Outcome.DONE], at)

    def end(self, number: int, receives: int, *, is_deleted: bool, now: float) -> list[Holding]:
        """Take in that the keeper is through with a message; return what to release.

        Not where that speaks of an earlier receive: it came once more meanwhile.

        Args:
            is_deleted: Whether SQS has confirmed the delete of it.
        """
        holding = self._by_number.get(number)
        if holding is None or receives < holding.receives:
            return []
        self._forget(holding, is_deleted=is_deleted)
        del self._by_number[number]
        self._ending -= holding.lease.state is not State.HELD
        if holding.lease.state is State.DONE:
            self._strays.forget(holding.lease.key)
        self._places.free(holding.place)
        return self._release_stopped(now)

    def to_resume(self, now: float) -> list[tuple[Holding, bool]]:
        """Return the holdings that a new keeper is to go on with, each as it is now.

        And whether a release of it may have been sent. What the worker has dropped, what has
        come back to it since its release, and what the last keeper was through with, is over.
        """
        for holding in list(self._by_number.values()):
            is_current = self._by_key.get(holding.lease.key) is holding
            is_ending = holding.lease.state is not State.HELD
            if not is_current or (is_ending and self._written.is_over(holding)):
                self._releases.pop(holding.number, None)
                is_deleted = self._written.is_deleted(holding)
                self.end(holding.number, holding.receives, is_deleted=is_deleted, now=now)
        return [(each, self._resumed(each, now)) for each in self._by_number.values()]

    def _resumed(self, holding: Holding, now: float) -> bool:
        """Bring a holding up to date for a new keeper; return whether it was being released."""
        lease = self._written.refresh(holding)
        if lease.state is State.HELD and self._written.was_released(holding):
            # By the keeper itself, for its group, and the worker had not heard of it.
            self._want(holding, State.BACK, now)
            return True
        if lease.state is not State.BACK:
            return False
        if self._written.may_be_releasing(holding):
            # Its fate stays unknown, whatever its end is called.
            self._releases.pop(holding.number, None)
            return True
        if lease.key in self._finished:
            # Released under a task that went on and succeeded all the same.
            lease.state = State.DONE
            # The release may have been tried: no extension may follow it.
            lease.terms = replace(lease.terms, extend=False)
        return False

    def _begin(self, receive: Receive, terms: LeaseTerms) -> Holding:
        lease = receive.new_lease(terms)
        holding = Holding(lease=lease, number=next(self._numbers))
        self._by_key[lease.key] = self._by_number[holding.number] = holding
        return holding

    def _release_stopped(self, now: float) -> list[Holding]:
        """Release what waits behind messages that stop their groups; return it in that order."""
        return [
            self._release(holding, 0, now, cause)
            for lease, cause in self._order.take_stopped()
            if lease.state is State.HELD
            and (holding := self._by_key.get(lease.key)) is not None
            and holding.lease is lease
        ]

    def _release(self, holding: Holding, delay: int, now: float, cause: str) -> Holding:
        lease = self._written.refresh(holding)
        lease.release_delay = delay
        lease.cause = cause
        self._want(holding, State.BACK, now)
        # What comes of its group from now on, SQS has handed out after that.
        self._order.end(lease, is_deleted=False)
        entry = Entry(lease, lease.receipt_handle, Action.RELEASE, lease.release_delay)
        call = Call(CallKind.CHANGE_VISIBILITY, lease.queue_url, (entry,), now)
        self._strays.note_sent(call)
        self._releases[holding.number] = call
        if len(self._releases) > CAPACITY:
            self._releases.popitem(last=False)
        return holding

    def _want(self, holding: Holding, state: State, now: float) -> None:
        holding.lease.want(state, now, due=now)
        self._ending += 1

    def _forget(self, holding: Holding, *, is_deleted: bool = False) -> None:
        self._order.end(holding.lease, is_deleted=is_deleted)
        if self._by_key.get(holding.lease.key) is holding:
            del self._by_key[holding.lease.key]
        for handle in holding.lease.handles:
            if self._by_handle.get(handle) is holding:
                del self._by_handle[handle]


def _take_receive(lease: Lease, receive: Receive) -> None:
    lease.standing = Standing.OURS
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

"""The worker's view of a keeper that runs in another process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.common.waiting import wait_for
from celery_sqs_heartbeat.leases.actions import is_confirmed, is_lost, is_ours
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.message import content_of, receive_of
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.leases.view import LeaseView
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.frames import Message, Wire
from celery_sqs_heartbeat.link.held_message import HeldMessage
from celery_sqs_heartbeat.link.held_messages import HeldMessages

#: After this order a keeper reads no more messages.
_LAST = "stop"
#: The worker stops receiving when so many messages wait for the keeper to read them.
MAX_WAITING = 1_000
#: So many messages are sent at once, even if none is urgent.
_MANY = 100


class LinkedKeeper:
    """Records the messages a worker holds and reports them to its keeper.

    `ThreadKeeper` describes the methods. Each returns at once, except those that take a timeout:
    it changes the worker's record and writes a message to the link. Any thread may call them, and
    so may a signal handler, see `defer`. In a forked child every method does nothing, because the
    leases belong to the parent.

    Args:
        held_messages: The messages the worker holds. Nothing else may use it.
        clock: Monotonic seconds.
    """

    def __init__(
        self, held_messages: HeldMessages, *, clock: Callable[[], float] = clocks.now
    ) -> None:
        self._held_messages = held_messages
        self._clock = clock
        self._lock = SignalSafeLock()
        self._wire: Wire | None = None
        # By kind and subject: the messages that a new keeper needs besides the leases.
        self._kept_orders: dict[tuple[Any, ...], Message] = {}
        self._pid = os.getpid()
        self._is_gathering = False
        #: Called without the lock when it may be the turn of a message that waited for its group.
        self.on_turn: Callable[[], object] = lambda: None

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Send the messages of the block together when it ends. This takes less time."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self.push()

    def receive(
        self,
        queue_url: str,
        message: Mapping[str, Any],
        *,
        terms: LeaseTerms,
        hidden_for: int,
        sent_at: float,
        max_receive_count: int | None = None,
        task: str | None = None,
        task_id: str | None = None,
    ) -> ReceivedAs:
        """Begin a lease on a message as SQS returned it, or continue the message's lease."""
        if self._is_forked():
            return ReceivedAs.NEW
        receive = receive_of(
            queue_url,
            message,
            hidden_for=hidden_for,
            sent_at=sent_at,
            arrived_at=self._clock(),
            task=task,
            task_id=task_id,
            max_receive_count=max_receive_count,
        )
        with self._lock:
            receipt, held = self._held_messages.receive(receive, terms.with_room())
            if held is not None:
                held.keep(message)
                self._post(messages.received(held, receipt, receive))
            return receipt

    def done(self, receipt_handle: str) -> bool:
        """Have the message deleted. Return False if no lease has that handle.

        The keeper repeats the delete until SQS confirms it.
        """
        return self._change("done", lambda now: (self._held_messages.done(receipt_handle, now), ()))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. Return False if it is unknown."""
        if self._is_forked():
            return True
        with self._lock:
            now = self._clock()
            held, released = self._held_messages.release(receipt_handle, delay, now, cause)
            self._say_released(released)
            return held is not None

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins, and in which process. False if it is unknown."""
        if self._is_forked():
            return True
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None:
                return False
            now, pid = self._clock(), pid or self._pid
            held.lease.started_at, held.pid = now, pid
            self._post(("started", held.number, held.receives, now, pid), is_urgent=False)
            return True

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending: the visibility timeout then runs out. Return False if it is unknown.

        Args:
            cause: The reason, which is reported unless it is empty.
        """
        return self._change(
            "drop", lambda now: self._held_messages.let_expire(receipt_handle, now), cause
        )

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, even if it is acked later. False if it is unknown."""
        return self._change("drop", lambda now: self._held_messages.disown(receipt_handle, now), "")

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension. Return whether the message is ours."""
        if self._is_forked():
            return True
        return wait_for(lambda: self._is_confirmed(receipt_handle), timeout)

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""
        if self._is_forked():
            return True
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None:
                return False
            # Without a place in the table, nothing more is known about a message.
            return held.place is None or is_ours(held.lease, self._clock())

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS reported that the message is no longer ours, or we gave it up."""
        if self._is_forked():
            return False
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None or held.place is None:
                return False
            return is_lost(held.lease, self._clock())

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        if self._is_forked():
            return False
        with self._lock:
            return self._held_messages.is_disowned(receipt_handle)

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the current state of the lease that has, or once had, that handle.

        Do not change it.
        """
        if self._is_forked():
            return None
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            return held.lease if held is not None else None

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all taken at one moment."""
        if self._is_forked():
            return ()
        with self._lock:
            now = self._clock()
            return tuple(LeaseView.of(lease, now) for lease in self._held_messages.leases())

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._clock()

    def defer(self, job: Callable[[], object]) -> bool:
        """Run a job when the thread leaves the method of this object that it is in.

        Return False if the thread is in none: the job is not run then.
        """
        return not self._is_forked() and self._lock.defer(job)

    def __len__(self) -> int:
        """How many messages it keeps."""
        return len(self._held_messages)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._held_messages.ending

    @property
    def is_behind(self) -> bool:
        """Whether the worker must stop receiving: no keeper is ready, or it does not keep up."""
        wire = self._wire
        if wire is None or wire.is_broken or self._held_messages.table.tick == 0.0:
            return True
        return wire.waiting >= MAX_WAITING

    def order(self, *message: Any, about: tuple[Any, ...] = ()) -> None:
        """Send a message to this keeper, and to each keeper that replaces it.

        Args:
            about: The subject. A new keeper gets the last message of each kind and subject.
        """
        if not self._is_forked():
            subject = (message[0], *about)
            with self._lock:
                self._post(message)
                self._kept_orders[subject] = message

    def say(self, *message: Any) -> None:
        """Send a message to this keeper only, and not to those that replace it."""
        if not self._is_forked():
            with self._lock:
                self._post(message)

    def attach(self, wire: Wire, greeting: Iterable[Message]) -> None:
        """Continue with a new keeper: send it the orders and all leases over the wire.

        Args:
            greeting: The first messages to send.
        """
        with self._lock:
            orders = self._kept_orders.values()
            for message in (*greeting, *(each for each in orders if each[0] != _LAST)):
                wire.post(message)
            for held, was_releasing in self._held_messages.to_resume(self._clock()):
                wire.post(messages.resume(held, was_releasing=was_releasing))
            for message in (each for each in orders if each[0] == _LAST):
                wire.post(message)
            self._wire = wire
            wire.flush()

    def detach(self) -> None:
        """Note that no keeper runs."""
        with self._lock:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()

    def leave_to_parent(self) -> None:
        """Close the link in a forked child.

        This takes no lock: another thread of the parent may have held it during the fork.
        """
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def push(self) -> bool:
        """Send the messages that wait. Return whether all were sent."""
        with self._lock:
            return self._wire is None or self._wire.flush()

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""
        if self._is_forked():
            return False
        with self._lock:
            return self._held_messages.waits_behind(receipt_handle)

    def end(self, number: int, receives: int, *, is_deleted: bool) -> None:
        """Note that the keeper is done with a message.

        Args:
            is_deleted: Whether SQS has confirmed its delete.
        """
        with self._lock:
            now = self._clock()
            self._say_released(
                self._held_messages.end(number, receives, is_deleted=is_deleted, now=now)
            )
        self.on_turn()

    def note_event(self, number: int, event: Event) -> None:
        """Note an event of a lease."""
        with self._lock:
            self._say_released(self._held_messages.note_event(number, event, self._clock()))
        self.on_turn()

    def _is_confirmed(self, receipt_handle: str) -> bool | None:
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            return is_confirmed(held.lease if held is not None else None, self._clock())

    def _change(
        self,
        kind: str,
        change: Callable[[float], tuple[HeldMessage | None, Iterable[HeldMessage]]],
        *fields: object,
    ) -> bool:
        """Change a held message and report it to the keeper. Return whether it exists.

        Args:
            change: Returns the held message, and the messages that must be released with it.
            fields: The other fields of the message to the keeper.
        """
        if self._is_forked():
            # Nothing of the parent may be touched, above all not its lock.
            return True
        with self._lock:
            held, released = change(self._clock())
            self._say_released(released)
            if held is not None:
                self._say_of(held, kind, *fields)
            return held is not None

    def _say_released(self, held_messages: Iterable[HeldMessage]) -> None:
        for held in held_messages:
            lease = held.lease
            # The delay as it was cut: the caller may have passed any type that acts as a number.
            fields = (lease.release_delay, lease.cause)
            if held.is_sent_again and held.message is not None:
                self._say_of(held, "send-again", *fields, content_of(held.message))
            else:
                self._say_of(held, "release", *fields)

    def _say_of(self, held: HeldMessage, kind: str, *fields: object) -> None:
        self._post((kind, held.number, held.receives, *fields))

    def _post(self, message: Message, *, is_urgent: bool = True) -> None:
        """Send a message. One that is not urgent waits for the next one, or for a `push`."""
        if self._wire is not None:
            self._wire.post(message)
            if not self._is_gathering if is_urgent else self._wire.waiting >= _MANY:
                self._wire.flush()

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

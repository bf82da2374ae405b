"""A keeper in another process, as its worker sees it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.signal_safe_lock import SignalSafeLock
from celery_sqs_heartbeat.keeper.waiting import wait_for
from celery_sqs_heartbeat.leases.actions import is_confirmed, is_lost, is_ours
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.message import receive_of
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.leases.view import LeaseView
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.held_message import HeldMessage
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.wire import Sender

#: The order after which a keeper reads no more.
_LAST = "stop"
#: Messages that the keeper has not taken, at which consuming is to pause.
MAX_WAITING = 1_000


class LinkedKeeper:
    """Knows what a worker holds, and has its keeper know it; see `ThreadKeeper` for the methods.

    Each method returns at once: it changes what is known here and writes a message. Safe to use
    from any thread, and in a signal's handler, see `defer`. In a forked child every method
    does nothing: the leases are the parent's.

    Args:
        holdings: What the worker holds, of which this is the only user.
        clock: Monotonic seconds.
    """

    def __init__(
        self, held_messages: HeldMessages, *, clock: Callable[[], float] = clocks.now
    ) -> None:
        self._held_messages = held_messages
        self._clock = clock
        self._lock = SignalSafeLock()
        self._wire: Sender | None = None
        # By kind and subject: what a new keeper has to know besides the leases.
        self._kept_orders: dict[tuple[Any, ...], Message] = {}
        self._pid = os.getpid()
        self._is_gathering = False
        #: Is called, without the lock, when a message of a group may have come to its turn.
        self.on_turn: Callable[[], object] = lambda: None

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Send what is said within the block at its end, all at once: it takes less time."""
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
        """Begin a lease on a message as SQS returned it, or go on with the one it has."""
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
                self._post(messages.received(held, receipt, receive))
            return receipt

    def done(self, receipt_handle: str) -> bool:
        """Delete the message, until SQS confirms. False when no lease has that handle."""
        return self._change("done", lambda now: (self._held_messages.done(receipt_handle, now), ()))

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. False when unknown."""
        if self._is_forked():
            return True
        with self._lock:
            now = self._clock()
            held, released = self._held_messages.release(receipt_handle, delay, now, cause)
            self._say_released(released)
            return held is not None

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins, and in which process. False when unknown."""
        if self._is_forked():
            return True
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None:
                return False
            now, pid = self._clock(), pid or self._pid
            held.lease.started_at, held.pid = now, pid
            if self._wire is not None:
                # No one waits for it: it goes with what is said next.
                self._wire.post(("started", held.number, held.receives, now, pid))
            return True

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending: the message becomes visible by itself. False when unknown.

        Args:
            cause: Why it is left to that; reported, unless empty.
        """
        return self._change(
            "drop", lambda now: self._held_messages.let_expire(receipt_handle, now), cause
        )

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, also if its ack comes later. False when unknown."""
        return self._change("drop", lambda now: self._held_messages.disown(receipt_handle, now), "")

    def confirm(self, receipt_handle: str, timeout: float) -> bool:
        """Wait until SQS has confirmed an extension; return whether the message is ours."""
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
            # Of one without a place in the table nothing else is known.
            return held.place is None or is_ours(held.lease, self._clock())

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS says that the message is not ours any more, or we gave it up."""
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
        """Return the lease that has, or once had, that handle, as it is now. Read it only."""
        if self._is_forked():
            return None
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            return held.lease if held is not None else None

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return what is to be seen of every lease, all at one moment."""
        if self._is_forked():
            return ()
        with self._lock:
            now = self._clock()
            return tuple(LeaseView.of(lease, now) for lease in self._held_messages.leases())

    def now(self) -> float:
        """Return the time of the keeper's clock, in seconds."""
        return self._clock()

    def defer(self, job: Callable[[], object]) -> bool:
        """Have a job done right after the call of this that the thread is in, if it is in one."""
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
        """Whether there is no keeper, or it has not taken what it was sent: consume no more."""
        wire = self._wire
        return wire is None or wire.is_broken or wire.waiting >= MAX_WAITING

    def order(self, *message: Any, about: tuple[Any, ...] = ()) -> None:
        """Have this keeper, and any after it, know something besides the leases.

        Args:
            about: Its subject, of which the last message counts; all of a kind are one without it.
        """
        if not self._is_forked():
            subject = (message[0], *about)
            with self._lock:
                self._post(message)
                self._kept_orders[subject] = message

    def say(self, *message: Any) -> None:
        """Have this keeper, and none after it, know something."""
        if not self._is_forked():
            with self._lock:
                self._post(message)

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until every delete and release is confirmed; False if that took too long.

        The keeper logs which are not.
        """
        if self._is_forked():
            return True
        self.say("hurry")
        is_through = wait_for(lambda: not self.ending or None, timeout)
        if not is_through:
            self.say("unconfirmed", timeout)
        return is_through

    def attach(self, wire: Sender, greeting: Iterable[Message]) -> None:
        """Go on with a new keeper: it gets all that it has to know by the wire.

        Args:
            greeting: Its first messages.
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
        """Note that there is no keeper."""
        with self._lock:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()

    def leave_to_parent(self) -> None:
        """Close the link in a forked child. Takes no lock: another thread may have had it."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def push(self) -> bool:
        """Send what the keeper would not take before; return whether nothing waits any more."""
        with self._lock:
            return self._wire is None or self._wire.flush()

    def waits_behind(self, receipt_handle: str) -> bool:
        """Return whether a message must wait for another of its group."""
        if self._is_forked():
            return False
        with self._lock:
            return self._held_messages.waits_behind(receipt_handle)

    def end(self, number: int, receives: int, *, is_deleted: bool) -> None:
        """Take in that the keeper is through with a message.

        Args:
            is_deleted: Whether SQS has confirmed the delete of it.
        """
        with self._lock:
            now = self._clock()
            self._say_released(
                self._held_messages.end(number, receives, is_deleted=is_deleted, now=now)
            )
        self.on_turn()

    def note_event(self, number: int, event: Event) -> None:
        """Take in what has happened to a lease."""
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
        """Change a holding, and say so; return whether there is one.

        Args:
            change: Returns the holding, and what is to be released with it.
            fields: What else the keeper is to know.
        """
        if self._is_forked():
            # Nothing of the parent's may be touched, its lock least of all.
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
            # As it was cut: anything with a number's methods may have been given.
            self._say_of(held, "release", lease.release_delay, lease.cause)

    def _say_of(self, held: HeldMessage, kind: str, *fields: object) -> None:
        self._post((kind, held.number, held.receives, *fields))

    def _post(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.post(message)
            if not self._is_gathering:
                self._wire.flush()

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

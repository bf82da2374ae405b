"""The worker's view of its keeper, which runs in another process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.common.threads import SignalSafeLock
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseView
from celery_sqs_heartbeat.leases.message import Arrived, content_of, is_sent_again
from celery_sqs_heartbeat.leases.policy import is_lost, is_ours
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.deliveries import MOST_READ, Credit, Inlet
from celery_sqs_heartbeat.link.frames import Message, Wire
from celery_sqs_heartbeat.link.held_messages import HeldMessage, HeldMessages
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue

#: A new keeper must know all leases before it receives. After the last of these it reads no more.
_AFTER_LEASES = ("end", "stop")


class LinkedKeeper:
    """Says to its keeper what happens to the worker's messages, and knows what was said.

    `ThreadKeeper` describes the methods. Each returns at once: it changes the worker's record and
    writes a message to the link. Any thread may call them, and so may a signal handler, see
    `defer`. A forked child knows of no message, and says nothing: the leases belong to the parent.

    Args:
        held_messages: The messages the worker holds. Nothing else may use it.
        inlet: Where the keeper's messages arrive.
        clock: Monotonic seconds.

    Attributes:
        on_arrived: Is called under the lock with messages that have arrived, each with the number
            of its channel.
    """

    def __init__(
        self,
        held_messages: HeldMessages,
        inlet: Inlet,
        *,
        clock: Callable[[], float] = clocks.now,
    ) -> None:
        self.on_arrived: Callable[[list[tuple[int, Arrived]]], object] = lambda arrived: None
        self._held_messages = held_messages
        self._inlet = inlet
        self._clock = clock
        self._lock = SignalSafeLock()
        self._wire: Wire | None = None
        # The messages that a new keeper needs besides the leases.
        self._kept_orders: dict[tuple[Any, ...], Message] = {}
        self._consumed: dict[int, dict[str, ConsumedQueue]] = {}
        self._credit = Credit(inlet)
        self._pid = os.getpid()

    def consume(self, channel: int, queues: Iterable[ConsumedQueue]) -> None:
        """Have the messages of queues received for a channel from now on."""
        with self._lock:
            known = self._consumed.setdefault(channel, {})
            known.update({each.name: each for each in queues})
            self._post(messages.consume(channel, queues))

    def follow(self, channel: int, queue: ConsumedQueue) -> None:
        """Continue with what has changed about a queue, unless it was cancelled meanwhile."""
        with self._lock:
            known = self._consumed.get(channel, {})
            if known.get(queue.name, queue) != queue:
                known[queue.name] = queue
                self._post(messages.consume(channel, [queue]))

    def cancel(self, channel: int, queue: str) -> None:
        """Have no more messages of a queue received for a channel."""
        with self._lock:
            self._consumed.get(channel, {}).pop(queue, None)
            self._post(("cancel", channel, queue))

    def close(self, channel: int) -> None:
        """Have nothing more received for a channel."""
        with self._lock:
            self._consumed.pop(channel, None)
            self._credit.end(channel)
            self._post(("close", channel))

    def end_receiving(self) -> None:
        """Have nothing more received."""
        with self._lock:
            self._consumed.clear()
        self.order("end")

    def allow(self, channel: int, room: Callable[[], tuple[int, int]]) -> None:
        """Say how many messages a channel may get in all. It may be less than before.

        Args:
            room: Returns how many more than it got by now, and how many it may hold at once; 0
                without a limit. Called under the lock, so that the last room said is the latest.
        """
        with self._lock:
            self._credit.allow(channel, *room())

    def pull(self) -> bool:
        """Take messages that the keeper has handed over. Return whether there were any."""
        with self._lock:
            return self._pull()

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to `pull`."""
        return self._inlet.fileno()

    def _pull(self, most: float = MOST_READ) -> bool:
        arrived = []
        for (channel, queue, *fields), message in self._inlet.read(most):
            held = self._held_messages.add(messages.read_lease(fields), message)
            self._credit.note(channel)
            if held.is_over():
                self._held_messages.end(held.name)
                continue
            if held.lease.key in self._held_messages.finished:
                # Received before the keeper had learned that its task has succeeded.
                self.done(held.lease.receipt_handle)
                continue
            arrived.append((channel, Arrived(queue=queue, message=message, lease=held.lease)))
        if arrived:
            self.on_arrived(arrived)
        return bool(arrived)

    def done(self, receipt_handle: str) -> bool:
        """Have the message deleted. Return False if no lease has that handle.

        The keeper repeats the delete until SQS confirms it.
        """
        with self._lock:
            held = self._held_messages.done(receipt_handle, self._clock())
            is_known = self._say_of("done", held)
            if held is not None and held.lease.goal is Goal.RELEASE:
                # Its lease may have ended there by now.
                self._post(("finished", [held.lease.key]))
            return is_known

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Make the message visible again after `delay` seconds. Return False if it is unknown."""
        with self._lock:
            now = self._clock()
            held, is_new = self._held_messages.release(receipt_handle, delay, now, cause)
            if held is not None and is_new:
                self._say_released(held)
            return held is not None

    def note_start(self, receipt_handle: str, pid: int | None = None) -> bool:
        """Note that the message's task begins, and in which process. False if it is unknown."""
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None:
                return False
            now, pid = self._clock(), pid or os.getpid()
            held.lease.started_at, held.pid = now, pid
            self._post(("started", held.name, now, pid), is_urgent=False)
            return True

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending: the visibility timeout then runs out. Return False if it is unknown.

        Args:
            cause: The reason, which is reported unless it is empty.
        """
        with self._lock:
            return self._say_of("drop", self._held_messages.let_expire(receipt_handle), cause)

    def disown(self, receipt_handle: str) -> bool:
        """Give the message up for good, even if it is acked later. False if it is unknown."""
        with self._lock:
            return self._say_of("drop", self._held_messages.disown(receipt_handle), "")

    def owns(self, receipt_handle: str) -> bool:
        """Return whether the message is ours for now, as far as is known."""
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None:
                # A forked child knows of none: they are its parent's.
                return self._pid != os.getpid()
            # Without a place in the table, nothing more is known about a message.
            return held.place is None or is_ours(held.lease, self._clock())

    def is_lost(self, receipt_handle: str) -> bool:
        """Return whether SQS reported that the message is no longer ours, or we gave it up."""
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            if held is None or held.place is None:
                return False
            return is_lost(held.lease, self._clock())

    def is_disowned(self, receipt_handle: str) -> bool:
        """Return whether the message was given up under that handle."""
        with self._lock:
            return receipt_handle in self._held_messages.disowned

    def find(self, receipt_handle: str) -> Lease | None:
        """Return the current state of the lease that has, or once had, that handle.

        Do not change it.
        """
        with self._lock:
            held = self._held_messages.get(receipt_handle)
            return held.lease if held is not None else None

    def snapshot(self) -> tuple[LeaseView, ...]:
        """Return a view of every lease, all taken at one moment."""
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
        return self._lock.defer(job)

    def __len__(self) -> int:
        """How many messages it keeps."""
        return len(self._held_messages)

    @property
    def ending(self) -> int:
        """How many deletes and releases are not confirmed yet."""
        return self._held_messages.ending

    def order(self, *message: Any) -> None:
        """Send a message to this keeper, and the last one of each kind to its successors.

        Of those on how to reach a queue, they get the last for each queue.
        """
        with self._lock:
            self._post(message)
            self._kept_orders[message[: 2 if message[0] == "reach" else 1]] = message

    def say(self, *message: Any) -> None:
        """Send a message to this keeper only, and not to those that replace it."""
        with self._lock:
            self._post(message)

    def attach(self, wire: Wire, greeting: Iterable[Message]) -> None:
        """Continue with a new keeper: send it the orders and all leases over the wire.

        Args:
            greeting: The first messages to send.
        """
        with self._lock:
            # All that the last keeper had handed over: the next one must know it.
            self._pull(math.inf)
            held, now = self._held_messages, self._clock()
            orders = self._kept_orders.values()
            for message in (
                *greeting,
                *(each for each in orders if each[0] not in _AFTER_LEASES),
                *held.memory(),
                *(messages.resume(each, was_releasing=sent) for each, sent in held.to_resume(now)),
                *(messages.consume(channel, q.values()) for channel, q in self._consumed.items()),
                *(each for each in orders if each[0] in _AFTER_LEASES),
            ):
                wire.post(message)
            self._wire = wire
            self._credit.begin()
            self._flush()

    def detach(self) -> None:
        """Note that no keeper runs."""
        with self._lock:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()

    def leave_to_parent(self) -> None:
        """Close both ends in a forked child, and forget the messages, which are its parent's.

        Another thread of the parent may have held the lock during the fork, in the middle of a
        change.
        """
        self._lock = SignalSafeLock()
        self._held_messages = HeldMessages(self._held_messages.table)
        self.detach()
        self._inlet.close()

    def close_inlet(self) -> None:
        """Take no more messages: no keeper follows."""
        with self._lock:
            self._inlet.close()

    def push(self) -> bool:
        """Send the messages that wait. Return whether all were sent."""
        with self._lock:
            return self._flush()

    def take(self, message: list[Any]) -> bool:
        """Take what the keeper reports about a lease. Return False if it is about anything else."""
        with self._lock:
            match message:
                case ["over", str(name)]:
                    self._held_messages.end(name)
                case ["kept", list(fields)]:
                    self._held_messages.keep(messages.read_lease(fields))
                case _:
                    return False
        return True

    def note_event(self, event: Event) -> None:
        """Note an event of a lease."""
        with self._lock:
            self._held_messages.note_event(event)

    def _say_of(self, kind: str, held: HeldMessage | None, *fields: object) -> bool:
        """Say something of a message. Return whether there is one."""
        if held is not None:
            self._post((kind, held.name, *fields))
        return held is not None

    def _say_released(self, held: HeldMessage) -> None:
        lease = held.lease
        # The delay as it was cut: the caller may have passed any type that acts as a number.
        message = held.message
        is_again = message is not None and is_sent_again(lease, message, lease.cause)
        content = [content_of(message)] if message and is_again else []
        self._post(("release", held.name, lease.release_delay, lease.cause, *content))

    def _post(self, message: Message, *, is_urgent: bool = True) -> None:
        """Send a message. One that is not urgent waits for the next one, or for a `push`."""
        if self._wire is not None:
            self._wire.post(message)
            if is_urgent:
                self._flush()

    def _flush(self) -> bool:
        """Send the messages that wait, and the room that there is by now."""
        self._credit.say()
        return self._wire is None or self._wire.flush()

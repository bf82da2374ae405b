"""All that a worker's keeper receives: the receivers of its channels, and what they share.

It releases what no one takes, and sends messages again that a release would make dead letters,
although their tasks never started. The new message has the same body, so the same task id, and its
receives count from 1. The old one is deleted once SQS has confirmed the send. See
docs/decisions/2026-11-28-send-again.md.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.threads import wait_for
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import SENT_AGAIN, WORKER_DIED, named
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.message import Arrived, content_of, is_sent_again
from celery_sqs_heartbeat.observe.watched import PolledQueues
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import CLOSED, Intake
from celery_sqs_heartbeat.receiving.receiver import Receiver, ends_at
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue

logger = get_logger(__name__)

#: How late an answer may be when a worker ends, in seconds. It is read even if the machine or the
#: network stalls for a moment. With the longest poll and the shortest flush, the worker ends within
#: Kubernetes' 30 s.
READ_GRACE = 3.0
#: The longest delay of a sent message, in seconds (SQS API reference, SendMessage, DelaySeconds).
MAX_DELAY_SECONDS = 900


class Reception:
    """Receives for the channels of one worker. For any thread.

    Args:
        sqs: Makes the receives.
        sender: Sends messages again that a release would make dead letters.
        deliver: Takes messages for a channel, by its number, and returns how many of them have
            ended by then.
        keep: Takes new messages that must wait.
        most_waiting: How many messages may wait for another of their group.
        concurrency: How many tasks the worker runs at once; 0 if not known.

    Attributes:
        polled: Records how SQS answers the polls.
        is_urgent: Whether messages must be visible at once, because their worker has died.
        sender: Sends messages again.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        *,
        sqs: BotoSqs,
        sender: MessageSender,
        deliver: Callable[[int, list[Arrived]], int],
        keep: Callable[[list[Arrived]], object],
        most_waiting: int,
        concurrency: int,
    ) -> None:
        self.polled = PolledQueues()
        self.is_urgent = False
        self._keeper = keeper
        self._sqs = sqs
        self.sender = sender
        self._deliver = deliver
        self._keep = keep
        self._concurrency = concurrency
        self._lock = threading.RLock()
        self._waitlist = GroupWaitlist(keeper=keeper, limit=most_waiting, poll_left=self.poll_left)
        self._receivers: dict[int, Receiver] = {}
        #: Those of closed channels, until their polls are answered.
        self._closed: list[Receiver] = []
        self._has_ended = False

    @property
    def polls(self) -> list[Poll]:
        """The open polls."""
        receivers = [*tuple(self._receivers.values()), *self._closed]
        return [poll for receiver in receivers for poll in receiver.polls]

    def consume(self, channel: int, queues: Iterable[ConsumedQueue]) -> None:
        """Receive from queues for a channel, or continue with what has changed about them."""
        if not self._has_ended:
            self._receiver(channel).consume(*queues)

    def allow(self, channel: int, limit: int, prefetch_count: int) -> None:
        """Set how many messages a channel can use in all, and receive what there is room for."""
        if self._has_ended:
            return
        receiver = self._receiver(channel)
        receiver.allow(limit, prefetch_count)
        receiver.fill()

    def cancel(self, channel: int, queue: str) -> None:
        """Receive no more messages of a queue for a channel."""
        if (receiver := self._receivers.get(channel)) is not None:
            receiver.cancel(queue)

    def close(self, channel: int, cause: str = CLOSED) -> None:
        """Receive no more for a channel; see `Receiver.stop`."""
        if (receiver := self._receivers.get(channel)) is not None:
            self._closed = [*(each for each in self._closed if each.polls), receiver]
            receiver.stop(cause)
            del self._receivers[channel]

    def end(self) -> None:
        """Receive no more. What open polls still bring is released."""
        if self._has_ended:
            return
        self._has_ended = True
        self.polled.rest_all()
        cause = WORKER_DIED if self.is_urgent else "shutdown"
        for channel in tuple(self._receivers):
            self.close(channel, cause)

    def join(self) -> bool:
        """Wait until no poll is open after `end`, or is late. Return whether all are answered.

        At SQS, a long poll waits for up to 20 s. Messages that arrive meanwhile go to it, whether
        or not anyone reads the answer: up to ten messages, hidden for a whole visibility timeout.
        SQS may not notice that the connection was closed.
        """
        until = max([clock.now(), *(poll.ends_at for poll in self.polls)]) + READ_GRACE
        for receiver in self._closed:
            receiver.receiving.join(until - clock.now())
        return not self.polls

    def look(self) -> None:
        """Hand over and receive what nothing else may report."""
        for receiver in tuple(self._receivers.values()):
            receiver.fill()

    def take_turns(self) -> None:
        """Hand over messages that waited for another of their group."""
        if len(self._waitlist):
            self.look()

    def poll_left(self, lease: Lease) -> float:
        """Return for how long a release must hide a message from our own open polls, in seconds.

        A poll of a queue without a consumer would receive it, to release it. But each receive
        brings it nearer to the dead-letter queue. If its worker has died, it must not wait, unless
        it has one receive left at most.
        """
        if self.is_urgent and not lease.has_few_receives:
            return 0.0
        polls = (poll for poll in self.polls if self._heir(poll.source.name) is None)
        return max(0.0, ends_at(polls, lease.queue_url) - self._keeper.now())

    def release(
        self,
        receipt_handle: str,
        delay: float,
        cause: str,
        content: Mapping[str, Any] | None = None,
    ) -> bool:
        """Release a message, as soon as no poll of an ended consumer could receive it.

        Its answer would be released, too. But the message would have used up a receive, and after
        `maxReceiveCount` of them SQS moves it to the dead-letter queue. False if no lease has that
        handle.

        Args:
            content: The message's content, if it must be sent again instead.
        """
        lease = self._keeper.find(receipt_handle)
        delay = max(delay, self.poll_left(lease) if lease is not None else 0.0)
        if content is not None:
            return self.sender.send_again(receipt_handle, content, delay, cause)
        return self._keeper.release(receipt_handle, delay, cause)

    def _receiver(self, channel: int) -> Receiver:
        # Its queues and its room come from different threads.
        with self._lock:
            receiver = self._receivers.get(channel)
            if receiver is None:
                receiver = self._receivers[channel] = self._new_receiver(channel)
            return receiver

    def _new_receiver(self, channel: int) -> Receiver:
        intake = Intake(
            keeper=self._keeper,
            waitlist=self._waitlist,
            lock=self._lock,
            hand_over=lambda messages: self._deliver(channel, messages),
            keep=self._keep,
            release_one=self._release_one,
            heir=self._heir,
        )
        return Receiver(
            keeper=self._keeper,
            sqs=self._sqs,
            waitlist=self._waitlist,
            polled=self.polled,
            intake=intake,
            all_polls=lambda: self.polls,
            inherited=lambda: [
                it for each in self._closed for it in each.polls if not it.is_overdue
            ],
            concurrency=self._concurrency,
        )

    def _heir(self, queue: str) -> Intake | None:
        """Return what takes the messages of a queue now; None if no channel does."""
        receivers = tuple(self._receivers.values())
        return next((each.intake for each in receivers if each.wants(queue)), None)

    def _release_one(self, message: Mapping[str, Any], cause: str) -> None:
        """Make a message visible again that no one takes, or send it again."""
        handle = message["ReceiptHandle"]
        lease = self._keeper.find(handle)
        if lease is not None:
            is_again = is_sent_again(lease, message, cause)
            self.release(handle, 0, cause, content_of(message) if is_again else None)


@dataclass(eq=False, repr=False)
class MessageSender:
    """Replaces messages of a keeper by copies.

    Attributes:
        send: Sends a copy, and returns its id; see `BotoSqs.send_message`.
        run: Runs a function on another thread.
    """

    keeper: ThreadKeeper
    send: Callable[..., str]
    run: Callable[[Callable[[], object]], object]
    _sending: set[str] = field(default_factory=set, init=False)

    def send_again(
        self, receipt_handle: str, content: Mapping[str, Any], delay: float, cause: str
    ) -> bool:
        """Send a message again, then delete it. False if no lease has that handle.

        It is released instead if SQS does not confirm the send, or if it is not certainly ours.

        Args:
            delay: The seconds until it becomes visible.
            cause: The reason for the release.
        """
        lease = self.keeper.find(receipt_handle)
        if (
            lease is None
            or lease.goal is not Goal.HOLD
            or not (lease.is_exclusive and self.keeper.owns(receipt_handle))
        ):
            return self.keeper.release(receipt_handle, delay, cause)
        self._sending.add(receipt_handle)
        try:
            self.run(partial(self._replace, lease, receipt_handle, content, delay, cause))
        except RuntimeError:
            # No thread is free, and the system refuses a new one.
            self._sending.discard(receipt_handle)
            return self.keeper.release(receipt_handle, delay, cause)
        return True

    def wait(self, timeout: float) -> float:
        """Wait until SQS has answered every send. Return how long that took, in seconds."""
        if not self._sending:
            return 0.0
        began = time.monotonic()
        wait_for(lambda: not self._sending or None, timeout)
        return min(time.monotonic() - began, timeout)

    def _replace(
        self,
        lease: Lease,
        receipt_handle: str,
        content: Mapping[str, Any],
        delay: float,
        cause: str,
    ) -> None:
        # Without a delay of its own, the message would get its queue's.
        options: dict[str, Any] = {"DelaySeconds": min(math.ceil(delay), MAX_DELAY_SECONDS)}
        if lease.group is not None:
            options["MessageGroupId"] = lease.group
        subject = named(lease)
        try:
            copy = self.send(lease.queue_url, content, **options)
        except Exception as error:
            logger.warning(
                "sqs-heartbeat: %s, was received for the last time (maxReceiveCount), its task has "
                "not started, and it can't be sent again: %s. It is released, and SQS moves it to "
                "the dead-letter queue. Permit sqs:SendMessage, or raise maxReceiveCount",
                subject,
                error,
            )
            self.keeper.release(receipt_handle, delay, cause)
        else:
            logger.info(
                "sqs-heartbeat: %s, was received for the last time (maxReceiveCount), and its task "
                "has not started (%s): it was sent again as %s",
                subject,
                cause,
                copy,
            )
            self.keeper.done(receipt_handle, SENT_AGAIN)
        finally:
            self._sending.discard(receipt_handle)

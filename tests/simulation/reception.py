"""The real `Reception` of a keeper, whose polls wait at the simulated SQS instead of on threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import ARRIVED_LATE, NOT_DELIVERED
from celery_sqs_heartbeat.leases.message import Message
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link.serving import LinkedLeases
from celery_sqs_heartbeat.receiving.receiver import Receiver
from celery_sqs_heartbeat.receiving.reception import MessageSender, Reception
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.long_polls import FIRST_PAUSE, SHORT_WAIT, Poll, Receiving, Source
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.sqs.sending import CallGivenUp
from tests.simulation.calls import Host
from tests.simulation.network import WAIT_SECONDS, poll_patience
from tests.simulation.rules import check_belief

#: How often a process looks whether an extension is confirmed, in seconds.
CONFIRM_LOOK_SECONDS = 0.25
#: How often it looks for messages whose turn has come, in visibility timeouts. A real process looks
#: every second, or more often. That would find nothing more here, and would take many events.
LOOK_PART = 0.1


class WatchedKeeper:
    """A keeper as an `Intake` calls it. Passes all calls on, and checks and notes some of them."""

    def __init__(self, host: Host, keeper: ThreadKeeper) -> None:
        self._host = host
        self._worker = host.worker
        self._world = host.worker.world
        self._keeper = keeper
        # Called most often.
        self.find, self.now = keeper.find, keeper.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)

    def receive(self, queue_url: str, message: Mapping[str, Any], **others: Any) -> ReceivedAs:
        """Receive a message, and check what the keeper believes of it."""
        world, worker = self._world, self._worker
        world.received(message)
        receipt = self._keeper.receive(queue_url, message, **others)
        world.receives.note_arrival(message, worker.name, receipt)
        world.log(worker.name, f"receives {receipt.value}", message["MessageId"])
        if lease := self._keeper.find(message["ReceiptHandle"]):
            check_belief(lease, world.truth[lease.message_id], worker.suspended)
        world.judge.note_refused(self._host.board)
        return receipt

    def release(self, receipt_handle: str, delay: float = 0, cause: str = "") -> bool:
        """Release a message, and note whether it is one of a last poll."""
        if self._host.is_ending and cause == NOT_DELIVERED:
            self._world.disturb(self._worker.name, "last poll brings a message")
        return self._keeper.release(receipt_handle, delay, cause)

    def let_expire(self, receipt_handle: str, cause: str = "") -> bool:
        """Stop extending a message, and note whether it came too late."""
        if cause == ARRIVED_LATE:
            self._world.disturb(self._worker.name, "drops a message that no extension confirmed")
        return self._keeper.let_expire(receipt_handle, cause)


class SimulatedReception(Reception):
    """Receives in a simulated process.

    Attributes:
        has_finished: Whether its process has ended after its last polls.
    """

    def __init__(
        self,
        process: Host,
        keeper: Any,
        sender: MessageSender,
        leases: LinkedLeases,
    ) -> None:
        self.process = process
        self.world = process.worker.world
        self.has_finished = False
        self._reads_until = 0.0
        self._looks_at: float | None = None
        super().__init__(
            keeper,
            sqs=BotoSqs(None),
            sender=sender,
            deliver=leases.deliver,
            keep=leases.keep,
            most_waiting=self.world.order.waiting,
            concurrency=self.world.profile.concurrency,
        )

    @property
    def is_reading(self) -> bool:
        """Whether a keeper that ends still waits for the open polls."""
        return bool(self.polls) and self.world.clock() < self._reads_until

    def look(self) -> None:
        """Hand over and receive what nothing else may report, and look again when it is time."""
        super().look()
        self.world.order.check_waiting(self.process.worker.name, len(self._waitlist))
        self._look_later()

    def end(self) -> None:
        """Receive no more. What open polls still bring is released."""
        if self._has_ended:
            return
        if polls := self.polls:
            self.world.disturb(self.process.worker.name, "shuts down during a poll")
            # Plus the time that the answer takes.
            wait = max(poll.waits for poll in polls) + 3 * self.world.profile.call_timeout
            self._reads_until = self.world.clock() + wait
            go_on = partial(self.process.run, self.process.go_on)
            self.world.clock.at(self._reads_until, go_on)
        super().end()

    def abandon(self) -> None:
        """Note that the process has died. SQS answers its open polls, and no one reads that."""
        for receiver in [*self._receivers.values(), *self._closed]:
            receiver.receiving.make_last()

    def _receiver(self, channel: int) -> Receiver:
        is_new = channel not in self._receivers
        receiver = super()._receiver(channel)
        if is_new:
            receiver.receiving = SimulatedReceiving(self, receiver)
        return receiver

    def _look_later(self) -> None:
        receivers = [*self._receivers.values(), *self._closed]
        if any(each.intake.is_unsure for each in receivers):
            wait = CONFIRM_LOOK_SECONDS
        elif len(self._waitlist):
            wait = LOOK_PART * self.world.profile.terms.visibility_timeout
        else:
            return
        due = self.world.clock() + wait
        if self._looks_at is None or due < self._looks_at:
            self._looks_at = due
            self.world.clock.at(due, partial(self.process.run, partial(self._look_at, due)))

    def _look_at(self, due: float) -> None:
        # Otherwise an earlier look has taken its place.
        if due == self._looks_at:
            self._looks_at = None
            self.process.go_on()


class SimulatedReceiving(Receiving):
    """The real rules for which polls are open, without their threads."""

    def __init__(self, reception: SimulatedReception, receiver: Receiver) -> None:
        super().__init__(room=receiver._room, take=lambda poll, messages: None)
        self._reception = reception
        self._receiver = receiver
        self._world = reception.world
        self._process = reception.process
        #: By open poll: makes it the last one.
        self._enders: dict[Poll, Any] = {}

    def remove(self, name: str) -> None:
        """Begin no more polls of a queue."""
        super().remove(name)
        self.make_last(name)

    def stop(self) -> None:
        """Begin no more polls."""
        super().stop()
        self.make_last()

    def make_last(self, name: str | None = None) -> None:
        """Let the open polls end after their present wait."""
        now = self._process.worker.now()
        for poll, make_last in list(self._enders.items()):
            if name is None or poll.source.name == name:
                del self._enders[poll]
                if poll.waits:
                    # One simulated poll stands for many that follow each other.
                    poll.sent_at = now - (now - poll.sent_at) % poll.waits
                make_last()

    def _start_all(self, polls: Sequence[Poll]) -> list[tuple[Source, str]]:
        clock = self._world.clock
        for poll in polls:
            if len(self._polls_of(poll.source)) > 1:
                self._world.disturb(self._process.worker.name, "has several polls open")
            # Never overdue: `clock.now` is another clock.
            poll.is_sent = False
            if not poll.wanted:
                self._send(poll)
            else:
                at = clock() + poll.patience
                clock.at(at, partial(self._process.run, partial(self._send, poll)))
        return []

    def _send(self, poll: Poll) -> None:
        world, process, worker = self._world, self._process, self._process.worker
        poll.wanted = 0
        try:
            queue = self._receiver._prepare(poll)
        except CallGivenUp:
            # As in `Receiving._pause`.
            poll.is_over, poll.booked = True, 0
            pause = 0.0 if self._is_stopping else FIRST_PAUSE
            world.clock.at(world.clock() + pause, partial(process.run, partial(self._end, poll)))
            return
        if self._receiver.keeper.is_stuck(queue.lease_url):
            world.fail(f"{worker.name} polls a queue of which its keeper makes no calls")
        sent_at = poll.sent_at = worker.now()
        suspended = worker.suspended
        wait, polls = int(poll.waits), world.polls[queue.url]
        world.waiting.note_poll(worker.name, queue.url)
        # A server that is stalled may answer after the last seconds for which the worker waits.
        held_for = world.starting.left(worker.name)
        worker.hurry(queue.terms.threshold)

        def deliver(messages: list[Message], skipped: float, *, is_late: bool = False) -> None:
            if messages and self._reception.has_finished and not held_for and not is_late:
                world.fail(f"{worker.name} ended without reading {len(messages)} messages")
            process.run(partial(arrive, messages, skipped, is_late=is_late))

        def arrive(messages: list[Message], skipped: float, *, is_late: bool) -> None:
            for message in messages:
                if suspended != worker.suspended:
                    world.truth[message["MessageId"]].excuses.add("suspend")
            self._answer(poll, queue, messages, sent_at + skipped, is_late=is_late)

        if world.loses_poll():
            late = partial(deliver, is_late=True)
            polls.lose(worker.name, poll.count, wait, queue.timeout, late)
            if worker.gives_up_polls:
                world.clock.at(world.clock() + poll_patience(wait), partial(deliver, [], 0.0))
        else:
            lasts = poll.waits if poll.longest_wait == SHORT_WAIT else WAIT_SECONDS
            self._enders[poll] = polls.receive(
                poll.count, wait, queue.timeout, deliver, held_for, lasts
            )

    def _end(self, poll: Poll) -> None:
        self._close(poll)
        self._process.go_on()

    def _answer(
        self,
        poll: Poll,
        queue: ConsumedQueue,
        messages: list[Message],
        sent_at: float,
        *,
        is_late: bool,
    ) -> None:
        """Take the answer of a poll, as `Receiving._poll` and `Receiver._take` do."""
        receiver, source = self._receiver, poll.source
        self._world.waiting.note_poll(self._process.worker.name, queue.url)
        if not is_late:
            self._enders.pop(poll, None)
            source.is_idle, source.last = not messages, len(messages)
            source.is_busy = len(messages) >= poll.count
            poll.is_over = True
        if messages:
            receiver.intake.take(queue, messages, sent_at=sent_at)
        if not is_late:
            self._close(poll)
        self._process.go_on()

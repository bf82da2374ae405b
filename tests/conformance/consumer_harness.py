"""A bench that runs the real keeper against a simulated SQS, on a clock that the test moves.

The keeper is the package's own, and so is the code that reads SQS's answers and errors. Only
its threads are replaced: the bench calls its `step` at the time that it requested, and whenever
a message changes or a call is answered, which is when its thread would wake.
The same scenario always makes the same calls at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue
from tests.conformance.network import Carrier, Network, SentCall

QUEUE = "work"
#: The events after which an owner can no longer rely on a lease.
BAD_NEWS = (EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST, EventKind.LEASE_CAPPED)


class ConsumerHarness:
    """A queue, a consumer and its keeper. Times in seconds; the first moment is 0.

    Messages are identified by their body, here called their name.

    Attributes:
        lapses: When a message became visible although its handler still ran, and its name.
    """

    def __init__(
        self,
        terms: LeaseTerms | None = None,
        *,
        interval: float = 1.0,
    ) -> None:
        self.terms = terms or LeaseTerms.of(30)
        self.clock = FakeClock()
        self.sqs = SimulatedSqs(self.clock, epoch=0.0)
        self.events: list[Event] = []
        self.lapses: list[tuple[float, str]] = []
        self._handles: dict[str, str] = {}
        self._carrier = Carrier(
            self.clock,
            self.sqs,
            self._handles.__getitem__,
            before_arrival=lambda call: self._note_lapses(),
            after_answer=self.wake,
        )
        self.keeper = ThreadKeeper(
            BotoSqs(self.sqs),
            terms=self.terms,
            interval=interval,
            clock=self.clock,
            jitter=lambda: 1.0,
            observers=[self._observe],
            dispatcher=self._carrier,
        )
        self._messages: dict[str, SimulatedMessage] = {}
        self._queues: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._turn = 0
        self._asleep = False

    # -- The clock ------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time."""
        return self.clock()

    def run(self, *, until: float) -> None:
        """Let time pass, and do all that becomes due."""
        self.clock.advance(until - self.clock())
        self._note_lapses()

    def at(self, time: float, job: Callable[[], object]) -> None:
        """Do something at that time."""
        self.clock.at(time, lambda: (job(), None)[1])

    def wake(self) -> None:
        """Give the keeper its turn."""
        if self._asleep:
            return
        due = self.keeper.step()
        self._turn += 1
        turn = self._turn
        self.clock.at(due, lambda: self.wake() if self._turn == turn else None)

    @contextmanager
    def at_one_blow(self) -> Iterator[None]:
        """Do things faster than the keeper's thread can wake."""
        self._asleep = True
        try:
            yield
        finally:
            self._asleep = False
            self.wake()

    # -- The network ----------------------------------------------------------------

    def through(self, network: Network) -> None:
        """Use this network for calls from now on."""
        self._carrier.network = network

    @property
    def calls(self) -> list[SentCall]:
        """Every call that the keeper has made."""
        return self._carrier.sent

    def asked(self, action: str, name: str) -> list[float]:
        """Return when the keeper sent this action for this message."""
        return [
            call.at
            for call in self.calls
            for ask in call.asks
            if ask.action == action and ask.name == name
        ]

    # -- The queue ------------------------------------------------------------------

    def queue(self, name: str = QUEUE) -> SimulatedQueue:
        """Return a queue, new at its first use; its timeout is that of the terms."""
        if name not in self.sqs.queues:
            options = QueueOptions(visibility_timeout=self.terms.visibility_timeout)
            self.sqs.new_queue(name, options)
        return self.sqs.queues[name]

    def send(self, *names: str, queue: str = QUEUE, group: str | None = None) -> None:
        """Put messages into a queue."""
        fifo = {"MessageGroupId": group} if group else {}
        for name in names:
            if group:
                fifo["MessageDeduplicationId"] = name
            answer = self.sqs.send_message(QueueUrl=self.queue(queue).url, MessageBody=name, **fifo)
            self._names[answer["MessageId"]] = name
            self._messages[name] = self.queue(queue).messages[answer["MessageId"]]
            self._queues[name] = queue

    def message(self, name: str) -> SimulatedMessage:
        """Return the message as SQS has it."""
        return self._messages[name]

    def steal(self, queue: str = QUEUE) -> list[str]:
        """Receive as another consumer, of whom the keeper knows nothing."""
        self._note_lapses()
        found = self.queue(queue).receive(self.now, count=10)
        for message in found:
            self._handles[message.handle] = message.body
        return [message.body for message in found]

    def delete_elsewhere(self, name: str) -> None:
        """Delete a message of ours as someone who obtained its handle."""
        self.queue(self._queues[name]).delete(self.message(name).handle, self.now)

    # -- The consumer ---------------------------------------------------------------

    def receive(
        self,
        *,
        queue: str = QUEUE,
        hidden_for: int | None = None,
        asked_ago: float = 0.0,
    ) -> list[str]:
        """Receive messages, pass them to the keeper and begin to handle new ones.

        Args:
            hidden_for: The visibility timeout to ask for; the queue's own without.
            asked_ago: How long ago the receive was sent, as SQS sees it too: what it
                hides, it hides from then on. A long poll whose answer was on its way
                for that long.

        Returns: The names of the new ones.
        """
        self._note_lapses()
        url = self.queue(queue).url
        asked = {} if hidden_for is None else {"VisibilityTimeout": hidden_for}
        if hidden_for is None:
            hidden_for = self.queue(queue).options.visibility_timeout
        answer = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], **asked
        )
        new: list[str] = []
        for message in answer.get("Messages", ()):
            name, handle = message["Body"], message["ReceiptHandle"]
            self._handles[handle] = name
            self._messages[name].visible_at -= asked_ago
            self._messages[name].received_at -= asked_ago
            receipt = self.keeper.receive(
                url,
                message,
                hidden_for=hidden_for,
                sent_at=self.now - asked_ago,
                task=name,
            )
            if receipt is ReceivedAs.NEW:
                self._held[name] = handle
                new.append(name)
        self.wake()
        return new

    def process(
        self,
        *names: str,
        takes: float,
        failed: bool = False,
        queue: str = QUEUE,
    ) -> None:
        """Send messages, receive them at once, and end all so much later."""

        def begin() -> None:
            self.send(*names, queue=queue)
            for _ in range(0, len(names), 10):
                self.receive(queue=queue)

        def finish() -> None:
            with self.at_one_blow():
                for name in names:
                    self.end(name, failed=failed)

        self.at(0.0, begin)
        self.at(takes, finish)

    def lease(self, name: str) -> Lease | None:
        """Return what the keeper knows of a message that is being handled."""
        return self.keeper.find(self._held[name])

    def end(self, name: str, *, failed: bool = False) -> None:
        """End a handler: its message is done, or must run again."""
        self._note_lapses()
        handle = self._held.pop(name)
        if failed:
            self.keeper.release(handle)
        else:
            self.keeper.done(handle)
        self.wake()

    # -- What was seen --------------------------------------------------------------

    def told(self, *kinds: EventKind) -> list[tuple[float, EventKind, str]]:
        """Return the events of those kinds: when, what, of whom."""
        return [
            (event.at, event.kind, self._names[event.message_id])
            for event in self.events
            if event.kind in kinds
        ]

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        log_event(event)

    def _note_lapses(self) -> None:
        for name in self._held:
            message = self._messages[name]
            lapse = (message.visible_at, name)
            is_visible = message.visible_at <= self.now and not message.is_deleted
            if is_visible and lapse not in self.lapses:
                self.lapses.append(lapse)

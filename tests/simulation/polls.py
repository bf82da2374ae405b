"""Long polls that wait at the simulated SQS for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.sqs.long_polls import ANSWER_SECONDS, FIRST_PAUSE
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from tests.simulation.hangs import Hang
from tests.simulation.network import NONE, Network

#: For how many seconds consecutive idle polls are simulated as one. Each poll would cost simulated
#: calls and find nothing.
WAIT_SECONDS = 600.0
#: The longest wait of one poll, in seconds (SQS API reference, ReceiveMessage).
LONGEST_POLL = 20

#: Receives the messages, and after how many seconds the poll that returned them was sent.
Deliver = Callable[[list[dict[str, Any]], float], None]


@dataclass(frozen=True, kw_only=True)
class LostPoll:
    """A poll whose answer arrives late, or never."""

    url: str
    waits: int
    count: int
    timeout: int | None

    @property
    def patience(self) -> float:
        """After how many seconds its process polls again: it fails, and a pause follows."""
        return self.waits + ANSWER_SECONDS + FIRST_PAUSE / 2


@dataclass(eq=False)
class _Poll:
    count: int
    since: float
    wait: int
    timeout: int | None
    answer: Callable[[Any], None]
    lasts: float

    @property
    def ends_at(self) -> float:
        return self.since + self.lasts

    def skipped(self, now: float) -> float:
        """Return after how many seconds the poll that is now open was sent."""
        elapsed = now - self.since
        return elapsed - elapsed % self.wait if self.wait else elapsed


class Polls:
    """The polls of all workers at one queue. They are answered in order.

    A poll whose worker is gone continues, and may swallow a message, as at SQS.

    Args:
        on_duplicate: Called with each message that SQS delivers although it is in flight.
        on_answer: Called with each message that SQS delivers.
    """

    def __init__(
        self,
        clock: FakeClock,
        sqs: SimulatedSqs,
        queue: SimulatedQueue,
        network: Network,
        on_duplicate: Callable[[str], None],
        on_answer: Callable[[dict[str, Any]], None],
    ) -> None:
        self._clock = clock
        self._sqs = sqs
        self._queue = queue
        self._network = network
        self._on_duplicate = on_duplicate
        self._on_answer = on_answer
        self._waiting: list[_Poll] = []
        self._wake_at: float | None = None

    def receive(
        self,
        count: int,
        wait: int,
        timeout: int | None,
        deliver: Deliver,
        patience: float,
        held_for: float = 0.0,
        lasts: float = WAIT_SECONDS,
    ) -> Callable[[], None]:
        """Request messages, in polls of `wait` seconds each, that SQS hides for `timeout` seconds.

        They end after `lasts` seconds in all. `deliver` receives the messages, or none if they were
        lost on the way, and after how many seconds the poll that returned them was sent.

        Returns:
            A function that makes the open poll the last one.
        """
        poll = _Poll(count, self._clock(), wait, timeout, lambda _: None, lasts)

        def arrive(answer: Callable[[Any], None], _is_over: bool) -> None:
            poll.since, poll.answer = self._clock(), answer
            self._waiting.append(poll)
            self.wake()

        def make_last() -> None:
            is_there = poll in self._waiting
            poll.lasts = wait + (poll.skipped(self._clock()) if is_there else 0.0)
            self.wake()

        self._network.carry(
            "ReceiveMessage",
            arrive,
            lambda answer: deliver(*answer),
            lambda: deliver([], 0.0),
            lasts + patience,
            Hang(there=held_for, fails_after=lasts + patience) if held_for else NONE,
        )
        return make_last

    def ask_in_vain(self, poll: LostPoll, answer: Callable[[Any], None]) -> None:
        """Request messages in one poll whose answer does not reach the worker in time."""
        waiting = _Poll(poll.count, self._clock(), poll.waits, poll.timeout, answer, poll.waits)
        self._waiting.append(waiting)
        self.wake()

    def wake(self) -> None:
        """Answer each poll that has messages now or whose wait has ended."""
        now = self._clock()
        while self._waiting:
            poll = self._waiting[0]
            if not self._queue.visible(now):
                break
            request: dict[str, Any] = {
                "QueueUrl": self._queue.url,
                "MaxNumberOfMessages": poll.count,
                "AttributeNames": ["All"],
            }
            if poll.timeout is not None:
                request["VisibilityTimeout"] = poll.timeout
            hidden = {m.message_id for m in self._queue.messages.values() if m.is_in_flight(now)}
            messages = self._sqs.call("ReceiveMessage", request).get("Messages")
            if not messages:
                break
            for message in messages:
                self._on_answer(message)
                if message["MessageId"] in hidden:
                    self._on_duplicate(message["MessageId"])
            self._waiting.pop(0).answer((messages, poll.skipped(now)))
        for poll in [poll for poll in self._waiting if poll.ends_at <= now]:
            self._waiting.remove(poll)
            poll.answer(([], 0.0))
        self._wake_later(now)

    def _wake_later(self, now: float) -> None:
        if not self._waiting:
            return
        times = [m.visible_at for m in self._queue.messages.values() if m.visible_at > now]
        due = min([*(poll.ends_at for poll in self._waiting), *times])
        if self._wake_at is None or due < self._wake_at or self._wake_at <= now:
            self._wake_at = due
            self._clock.at(due, self.wake)

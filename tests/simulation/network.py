"""Carries calls to the simulated SQS and their answers back. Long polls wait there for messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.sqs.long_polls import ANSWER_SECONDS, FIRST_PAUSE
from celery_sqs_heartbeat.testing import FakeClock, Faults
from celery_sqs_heartbeat.testing.queue import SimulatedQueue

if TYPE_CHECKING:
    from tests.simulation.world import World

#: For how many seconds consecutive idle polls are simulated as one. Each poll would cost simulated
#: calls and find nothing.
WAIT_SECONDS = 600.0
#: The longest wait of one poll, in seconds (SQS API reference, ReceiveMessage).
LONGEST_POLL = 20

#: How often a poll of a storm is not answered in time.
UNANSWERED = 0.03

#: Receives the messages, and after how many seconds the poll that returned them was sent.
Deliver = Callable[[list[dict[str, Any]], float], None]


def poll_patience(waits: float) -> float:
    """Return after how many seconds a process polls again: its poll fails, and a pause follows."""
    return waits + ANSWER_SECONDS + FIRST_PAUSE / 2


@dataclass(frozen=True)
class Hang:
    """How much longer one call takes in each direction, in seconds; infinity if it never ends.

    Attributes:
        fails_after: When it ends without an answer, in seconds after its sending.
    """

    there: float = 0.0
    back: float = 0.0
    fails_after: float = math.inf


#: For a call that does not hang.
NONE = Hang()


class Network:
    """Time and loss between workers and SQS."""

    def __init__(self, clock: FakeClock, faults: Faults) -> None:
        self._clock = clock
        self._faults = faults

    def carry(
        self,
        operation: str,
        arrive: Callable[[Callable[[Any], None], bool], None],
        answered: Callable[[Any], None],
        lost: Callable[[], None],
        timeout: float,
        hang: Hang = NONE,
    ) -> None:
        """Carry one call.

        Args:
            arrive: Executes the call at SQS. Its arguments are the function to call with the
                answer, and whether the caller has given up already.
            answered: Called with the answer, if it arrives in time.
            lost: Called if no answer arrives in time. Exactly one of the two is called, once. If
                the call hangs, that happens late or never.
        """
        fault = self._faults.of(operation)
        begin = self._clock()
        is_over = False

        def give_up() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                lost()

        def answer(value: Any) -> None:
            def deliver() -> None:
                nonlocal is_over
                if not is_over:
                    is_over = True
                    answered(value)

            if not self._faults.happens(fault.lost_answer):
                back = self._faults.travel_time(operation) + hang.back
                self._clock.at(self._clock() + back, deliver)

        fails_after = timeout if hang is NONE else hang.fails_after
        if fails_after < math.inf:
            self._clock.at(begin + fails_after, give_up)
        if not self._faults.happens(fault.lost_request) and hang.there < math.inf:
            there = self._faults.travel_time(operation) + hang.there
            self._clock.at(begin + there, lambda: arrive(answer, is_over))


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
    """

    def __init__(self, world: World, queue: SimulatedQueue) -> None:
        self._world = world
        self._clock = world.clock
        self._queue = queue
        self._waiting: list[_Poll] = []
        self._wake_at: float | None = None

    def receive(
        self,
        count: int,
        wait: int,
        timeout: int | None,
        deliver: Deliver,
        held_for: float = 0.0,
        lasts: float = WAIT_SECONDS,
    ) -> Callable[[], None]:
        """Request up to `count` messages, in polls of `wait` seconds each.

        `deliver` receives the messages, or none if they were lost on the way, and after how many
        seconds the poll that returned them was sent.

        Args:
            timeout: For how long SQS hides them, or None for the queue's own.
            held_for: How long the server waits before it looks for messages, in seconds.
            lasts: How long consecutive polls continue without messages, in seconds.

        Returns:
            A function that makes the open poll the last one.
        """
        # A message that arrives late in a long poll is extended at once.
        self._world.tally.visibility_bound += 1
        patience = lasts + self._world.profile.call_timeout
        poll = _Poll(count, self._clock(), wait, timeout, lambda _: None, lasts)

        def arrive(answer: Callable[[Any], None], _is_over: bool) -> None:
            poll.since, poll.answer = self._clock(), answer
            self._waiting.append(poll)
            self.wake()

        def make_last() -> None:
            is_there = poll in self._waiting
            poll.lasts = wait + (poll.skipped(self._clock()) if is_there else 0.0)
            self.wake()

        self._world.network.carry(
            "ReceiveMessage",
            arrive,
            lambda answer: deliver(*answer),
            lambda: deliver([], 0.0),
            patience,
            Hang(there=held_for, fails_after=patience) if held_for else NONE,
        )
        return make_last

    def lose(self, who: str, count: int, wait: int, timeout: int | None, deliver: Deliver) -> None:
        """Make one poll that is lost on its way there or back, or delayed too long."""
        chance = self._world.poll_random
        fate = chance.choice(("its request", "its answer", "late"))
        self._world.disturb(who, f"poll not answered: {fate}")
        late = self._clock() + poll_patience(wait) * chance.uniform(1.0, 3.0)

        def answer(value: tuple[list[dict[str, Any]], float]) -> None:
            if fate == "late":
                self._clock.at(max(late, self._clock()), lambda: deliver(*value))

        if fate != "its request":
            self._waiting.append(_Poll(count, self._clock(), wait, timeout, answer, wait))
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
            messages = self._world.sqs.call("ReceiveMessage", request).get("Messages")
            if not messages:
                break
            for message in messages:
                self._world.receives.note_answer(message)
                if message["MessageId"] in hidden:
                    self._world.truth[message["MessageId"]].excuses.add("twice")
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

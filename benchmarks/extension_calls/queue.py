"""The queue of a trace: hides messages, counts the calls that extend them, and how late they came.

All times in seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.extension_calls.trace import BATCH, Arrival, Window
from celery_sqs_heartbeat.testing import FakeClock

#: From a call to its answer. The call arrives at half of it.
ROUND_TRIP = 0.02
#: Less than this left at an extension: a lost call or a pause of the process is then enough to
#: lose the message.
LITTLE = 5.0


@dataclass(slots=True, eq=False)
class Held:
    """A message that a consumer holds.

    Attributes:
        number: Tells it from the others.
        visible_at: Until when the queue hides it.
        has_lapsed: Whether it has become visible while its task still ran.
    """

    number: int
    arrival: Arrival
    visible_at: float
    has_ended: bool = False
    has_lapsed: bool = False


@dataclass(slots=True)
class Tally:
    """What happened to a queue in the window.

    Attributes:
        calls: How many were sent.
        extensions: How many entries of them took effect.
        late: How many of these came with little time left.
        least_left: The least time left at an extension.
        ended: How many messages ended.
        lapsed: How many of these had become visible while their tasks ran.
    """

    calls: int = 0
    extensions: int = 0
    late: int = 0
    least_left: float = float("inf")
    ended: int = 0
    lapsed: int = 0


class Queue:
    """One queue. Every message can be extended, except after its task's end."""

    def __init__(self, clock: FakeClock, visibility_timeout: int, window: Window) -> None:
        self.clock = clock
        self.visibility_timeout = visibility_timeout
        self.tally = Tally()
        self._window = window
        self._numbers = itertools.count()

    def receive(self, arrival: Arrival) -> Held:
        """Hide a message, now."""
        hidden_until = self.clock() + self.visibility_timeout
        return Held(next(self._numbers), arrival, hidden_until)

    def end(self, message: Held) -> None:
        """Delete a message."""
        self._note_lapse(message)
        message.has_ended = True
        if self._counts(self.clock()):
            self.tally.ended += 1
            self.tally.lapsed += message.has_lapsed

    def extend(
        self,
        messages: Sequence[Held],
        timeout: float,
        answered: Callable[[], None] | None = None,
    ) -> None:
        """Send one call that hides messages for `timeout` seconds from its arrival.

        Args:
            answered: Called when the answer arrives.
        """
        assert 0 < len(messages) <= BATCH
        now = self.clock()
        self.tally.calls += self._counts(now)
        self.clock.at(now + ROUND_TRIP / 2, lambda: self._arrive(messages, timeout))
        if answered is not None:
            self.clock.at(now + ROUND_TRIP, answered)

    def extend_all(
        self,
        messages: Sequence[Held],
        timeout: float,
        answered: Callable[[], None] | None = None,
    ) -> None:
        """Send as many full calls as needed, at the same time."""
        for start in range(0, len(messages), BATCH):
            is_last = start + BATCH >= len(messages)
            self.extend(messages[start : start + BATCH], timeout, answered if is_last else None)

    def _arrive(self, messages: Sequence[Held], timeout: float) -> None:
        now = self.clock()
        for message in messages:
            if message.has_ended:
                continue
            self._note_lapse(message)
            if self._counts(now) and not message.has_lapsed:
                left = message.visible_at - now
                self.tally.extensions += 1
                self.tally.late += left < LITTLE
                self.tally.least_left = min(self.tally.least_left, left)
            message.visible_at = now + timeout

    def _note_lapse(self, message: Held) -> None:
        message.has_lapsed = message.has_lapsed or message.visible_at <= self.clock()

    def _counts(self, now: float) -> bool:
        return self._window.start <= now < self._window.end

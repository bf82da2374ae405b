"""The ways to extend that are compared, and how one is played on a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from benchmarks.extension_calls.queue import Held, Queue, Tally
from benchmarks.extension_calls.trace import HISTORY_SECONDS, Arrival, Window
from celery_sqs_heartbeat.testing import FakeClock


class Extending(Protocol):
    """Keeps the messages of one queue extended. It runs on the queue's clock."""

    def received(self, message: Held) -> None:
        """Begin to keep a message that has just been received."""

    def ended(self, message: Held) -> None:
        """Stop: the message's task has ended."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to extend.

    Attributes:
        name: Names it on the page.
        longest: Returns the longest time between two extensions of a message that it plans, in
            seconds, for a visibility timeout.
        new: Begins it on a queue.
    """

    name: str
    longest: Callable[[int], float]
    new: Callable[[Queue], Extending]


def play(way: Way, trace: Sequence[Arrival], window: Window, visibility_timeout: int) -> Tally:
    """Play a trace to the end of the window, and return what happened to its queue."""
    clock = FakeClock(-HISTORY_SECONDS)
    queue = Queue(clock, visibility_timeout, window)
    extending = way.new(queue)
    for arrival in trace:
        clock.at(arrival.received_at, partial(_begin, queue, extending, arrival))
    clock.advance(window.end - clock())
    return queue.tally


def _begin(queue: Queue, extending: Extending, arrival: Arrival) -> None:
    message = queue.receive(arrival)
    queue.clock.at(arrival.ends_at, partial(_end, queue, extending, message))
    extending.received(message)


def _end(queue: Queue, extending: Extending, message: Held) -> None:
    queue.end(message)
    extending.ended(message)

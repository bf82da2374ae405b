"""A timer for each message, and a call for each extension: three libraries.

Sources:

- bbc/sqs-consumer 15.0.3, `src/consumer.ts`: an interval timer, if `heartbeatInterval` is set.
  With a batch handler, the messages of a receive share a timer and its call. The trace receives
  its messages one by one, so that would be the same.
- MassTransit/MassTransit 8.5.8, `AmazonSqsTransport/AmazonSqsReceiveLockContext.cs` and
  `Topology/QueueReceiveSettings.cs` of its SQS transport: after 0.7 of the visibility timeout, and
  each extension asks for at most `MaxVisibilityTimeoutRenewal`, which is 60 s.
- taskiq-aio-sqs 2.1.1, `taskiq_aio_sqs/sqs_broker.py`, with `enable_heartbeat`: after half of the
  timeout, at most 100 times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.extension_calls.queue import Held, Queue
from benchmarks.extension_calls.ways import Extending, Way

#: sqs-consumer has no default. This is when ours extends, so both keep the same margin.
SQS_CONSUMER_PART = 2 / 3
MASSTRANSIT_PART = 0.7
#: The longest visibility timeout that MassTransit asks for by default, in seconds.
MASSTRANSIT_RENEWAL = 60.0
TASKIQ_PART = 1 / 2
TASKIQ_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """When a message is extended. Times in seconds.

    Attributes:
        first: From the receive to the first extension.
        then: Between two extensions.
        asks_for: The visibility timeout of each extension.
        most: The most extensions of a message.
        waits_for_answer: Whether the next pause begins with the answer, not with the call.
    """

    first: float
    then: float
    asks_for: float
    most: float = math.inf
    waits_for_answer: bool = True


class Timers(Extending):
    """One timer for each message."""

    def __init__(self, queue: Queue, timer: Timer) -> None:
        self._queue, self._clock, self._timer = queue, queue.clock, timer

    def received(self, message: Held) -> None:
        """Start its timer."""
        self._start(message, self._timer.first, 1)

    def ended(self, message: Held) -> None:
        """Do nothing: the timer looks whether its message has ended."""

    def _start(self, message: Held, seconds: float, number: int) -> None:
        if number <= self._timer.most:
            self._clock.at(self._clock() + seconds, partial(self._beat, message, number))

    def _beat(self, message: Held, number: int) -> None:
        if message.has_ended:
            return
        go_on = partial(self._start, message, self._timer.then, number + 1)
        if self._timer.waits_for_answer:
            self._queue.extend([message], self._timer.asks_for, go_on)
        else:
            self._queue.extend([message], self._timer.asks_for)
            go_on()


def sqs_consumer(visibility_timeout: int) -> Timer:
    """Return sqs-consumer's timer, which does not wait for answers."""
    every = visibility_timeout * SQS_CONSUMER_PART
    return Timer(first=every, then=every, asks_for=visibility_timeout, waits_for_answer=False)


def masstransit(visibility_timeout: int) -> Timer:
    """Return MassTransit's timer."""
    asks_for = min(visibility_timeout, MASSTRANSIT_RENEWAL)
    first = visibility_timeout * MASSTRANSIT_PART
    return Timer(first=first, then=asks_for * MASSTRANSIT_PART, asks_for=asks_for)


def taskiq(visibility_timeout: int) -> Timer:
    """Return the timer of taskiq-aio-sqs."""
    every = max(1.0, visibility_timeout * TASKIQ_PART)
    return Timer(first=every, then=every, asks_for=visibility_timeout, most=TASKIQ_MOST)


def _way(name: str, timer: Callable[[int], Timer]) -> Way:
    return Way(
        name,
        lambda visibility_timeout: timer(visibility_timeout).then,
        lambda queue: Timers(queue, timer(queue.visibility_timeout)),
    )


SQS_CONSUMER = _way("sqs-consumer", sqs_consumer)
MASSTRANSIT = _way("MassTransit", masstransit)
TASKIQ = _way("taskiq-aio-sqs", taskiq)

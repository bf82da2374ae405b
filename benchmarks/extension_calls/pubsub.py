"""Google Pub/Sub's leaser: everything that is held, again and again, after random pauses.

Source: googleapis/python-pubsub 2.35.0, in `google/cloud/pubsub_v1/subscriber/_protocol`:
`leaser.py` (the loop), `histogram.py` and `streaming_pull_manager.py` (the deadline), and
`dispatcher.py` (the shortest pause).

Pub/Sub is another service. On SQS, its requests for up to 1,000 messages become calls for ten,
sent at the same time. Its deadline becomes the timeout of the extensions, with
`max_duration_per_lease_extension` set to the queue's visibility timeout. Tasks here usually take
longer, so after the first ones both are the same. Its request at each receive is left out, because
a receive from SQS begins the visibility timeout.
"""

from __future__ import annotations

import math
import random

from benchmarks.extension_calls.queue import Held, Queue
from benchmarks.extension_calls.ways import Extending, Way

#: Between these, in seconds, it chooses its deadline: the 99th percentile of the run times.
SHORTEST, LONGEST = 10, 600
PERCENTILE = 0.99
#: A pause is a random part of this part of the deadline...
SNOOZE_PART = 0.9
#: ... but at least this, in seconds.
SHORTEST_PAUSE = 0.01


class AckTimes:
    """The deadline, learnt from how long tasks took. In whole seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: list[int] = []
        self._size_at_update = 0
        self._deadline = SHORTEST

    def add(self, seconds: float) -> None:
        """Note how long a task took."""
        self._times.append(min(max(int(seconds), SHORTEST), LONGEST))

    def deadline(self) -> int:
        """Return the deadline. It changes when twice as many, or 100 more, times are known."""
        size, last = len(self._times), self._size_at_update
        if size > min(2 * last, last + 100):
            self._size_at_update = size
            above = math.floor(size * (1 - PERCENTILE))
            self._deadline = sorted(self._times, reverse=True)[above]
        return min(self._deadline, self._most)


class PubSub(Extending):
    """Extends all messages in each pass, then pauses."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self._clock = queue, queue.clock
        self._held: dict[Held, None] = {}
        self._ack_times = AckTimes(max(SHORTEST, queue.visibility_timeout))
        self._random = random.Random(queue.visibility_timeout)
        self._pass()

    def received(self, message: Held) -> None:
        """Add it."""
        self._held[message] = None

    def ended(self, message: Held) -> None:
        """Remove it, and learn from it."""
        del self._held[message]
        self._ack_times.add(self._clock() - message.arrival.received_at)

    def _pass(self) -> None:
        deadline = self._ack_times.deadline()
        if self._held:
            self._queue.extend_all(list(self._held), deadline, lambda: self._pause(deadline))
        else:
            self._pause(deadline)

    def _pause(self, deadline: int) -> None:
        seconds = self._random.uniform(SHORTEST_PAUSE, SNOOZE_PART * deadline)
        self._clock.at(self._clock() + seconds, self._pass)


PUBSUB = Way("Google Pub/Sub", lambda visibility_timeout: SNOOZE_PART * visibility_timeout, PubSub)

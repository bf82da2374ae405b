"""Runs additional polls of busy queues on greenlets, in pools without an event loop.

There, a poll blocks the greenlet that sends it. With one poll at a time, gevent and eventlet
workers would wait for the answer to each receive, and then deliver its messages while no poll is
open. We considered to have the consumer's greenlet deliver the messages of all polls. But it may
wait for a free greenlet of the pool, or in the long poll of another queue, for longer than a
visibility timeout. So each greenlet leases and delivers what its polls return.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.blocking import BlockingPoller
from celery_sqs_heartbeat.transport.blocking_schedule import BlockingSchedule
from celery_sqs_heartbeat.transport.poll_room import MOST_POLLS

#: How long a greenlet waits for room before it checks whether its channel was closed, in seconds.
_LOOK_SECONDS = 1.0


class AdditionalPolls:
    """Polls a channel's busy queues beside the polls of its consumer's greenlet."""

    def __init__(
        self, *, heartbeat: Heartbeat, poller: BlockingPoller, schedule: BlockingSchedule
    ) -> None:
        self._heartbeat = heartbeat
        self._poller = poller
        self._schedule = schedule
        self._running: Counter[str] = Counter()

    def begin(self, queue: str) -> None:
        """Begin the additional polls of a queue for which there is room.

        In pools whose threads are not greenlets, there are none: such a pool may run tasks on the
        consumer's own thread.
        """
        if not self._heartbeat.has_greenlets:
            return
        while self._running[queue] < MOST_POLLS - 1 and self._schedule.is_due_beside(queue):
            self._running[queue] += 1
            self._heartbeat.poll_threads.start(partial(self._run, queue))

    def _run(self, queue: str) -> None:
        try:
            while self._schedule.has_more(queue):
                if not self._schedule.is_due_beside(queue):
                    self._schedule.wait_for_room(_LOOK_SECONDS)
                elif not self._poller.poll_beside(queue):
                    return
        finally:
            self._running[queue] -= 1

"""Decides when a channel's queues are polled on the event loop, and for how many messages."""

from __future__ import annotations

import math
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls

#: How often to check whether a queue that waits for a prefetch slot can be polled, and the delay
#: after a failed poll, in seconds. A polling interval, if set, replaces both.
_LOOK_AGAIN = 1.0


class Schedule:
    """Polls queues as soon as there is room for more messages, and requests no more than that."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._waiting: dict[str, Any] = {}

    def is_due(self, queue: str) -> bool:
        """Return whether to poll a queue now. If not, it is polled when a prefetch slot is free."""
        if not self._kombu.is_consumed(queue) or self._heartbeat.is_ending:
            return False
        if self._kombu.has_slot():
            return True
        # kombu checks again after a whole polling interval (since 5.7), or continuously (before).
        # No event reports a change of the slot count or the backlog of deletes, so a timer checks.
        self._waiting[queue] = self._kombu.hub.call_later(
            self._look_again_after(), self._stop_waiting, queue
        )
        self._heartbeat.polled.wait(queue)
        return False

    def poll_later(self, queue: str) -> None:
        """Poll a queue again after a poll of it that failed."""
        self._kombu.hub.call_later(self._look_again_after(), self._kombu.poll, queue)

    def poll_waiting(self) -> None:
        """Poll the queues that wait for a free prefetch slot, unless the worker is ending."""
        if self._heartbeat.is_ending:
            return
        for queue in list(self._waiting):
            self._stop_waiting(queue)

    def how_many(self, most: int) -> int:
        """Return how many messages to request: the queues share the free prefetch slots.

        If one poll takes all slots, each other queue may still request one message. So the worker
        exceeds its prefetch count by at most one message for each additional queue.

        Args:
            most: How many messages one receive may return.
        """
        free = self._kombu.free_slots()
        if free is None:
            return most
        now = clock.now()
        asked = sum(poll.count for poll in self._open if poll.ends_at > now)
        share = math.ceil(free / max(1, len(self._kombu.queues())))
        return max(1, min(most, share, free - asked))

    def note_pause(self) -> None:
        """Without an event loop, note that no queue is polled while there is no free slot."""
        if not self._kombu.has_slot():
            for queue in self._kombu.queues():
                self._heartbeat.polled.wait(queue)

    def note_cancelled(self, queue: str) -> None:
        """Note that a consumer of the queue was cancelled. It may have been the last one."""
        if not self._kombu.is_consumed(queue):
            self._heartbeat.polled.rest(queue)
            self._heartbeat.groups.leave("consumer closed", queue)

    def _look_again_after(self) -> float:
        return float(self._kombu.polling_interval or _LOOK_AGAIN)

    def _stop_waiting(self, queue: str) -> None:
        if timer := self._waiting.pop(queue, None):
            timer.cancel()
            self._kombu.hub.call_soon(self._kombu.poll, queue)

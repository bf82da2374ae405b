"""Decides when a channel's queues are polled without an event loop."""

from __future__ import annotations

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_room import PollRoom

#: How long the consumer's thread waits if kombu has no polling interval, in seconds.
_LOOK_AGAIN = 1.0


class BlockingSchedule:
    """Has queues polled as soon as there is room for more messages.

    The consumer's thread polls one queue after the other. Additional polls of a busy queue run on
    greenlets. They end when an answer is not full.
    """

    def __init__(
        self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls, room: PollRoom
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._room = room
        #: The queues whose last answer was full.
        self._full: set[str] = set()
        #: Wakes the consumer's thread.
        self._change = AutoResetEvent()
        #: Wakes a greenlet that waits for room.
        self._freed = AutoResetEvent()

    def wait_until_due(self, seconds: float | None) -> None:
        """Wait until a queue is due.

        kombu would sleep for a whole polling interval instead, whatever is acked meanwhile.

        Args:
            seconds: How long to wait at most; None for a polling interval.
        """
        if seconds is None:
            seconds = float(self._kombu.polling_interval or _LOOK_AGAIN)
        until = clock.now() + seconds
        while not self._is_any_due():
            for queue in self._kombu.queues():
                self._heartbeat.polled.wait(queue)
            if (left := until - clock.now()) <= 0:
                return
            self._change.wait(left)

    def is_due(self, queue: str) -> bool:
        """Return whether the consumer's thread may poll a queue now."""
        now = clock.now()
        # The answer of a poll whose time has passed may be lost.
        if any(poll.ends_at > now for poll in self._open.waiting_for(queue)):
            return self.is_due_beside(queue)
        return self._room.is_left() and not self._heartbeat.is_ending

    def has_more(self, queue: str) -> bool:
        """Return whether a queue is consumed from, and its last answer was full."""
        is_over = self._kombu.is_closed or self._heartbeat.is_ending
        return queue in self._full and self._kombu.is_consumed(queue) and not is_over

    def is_due_beside(self, queue: str) -> bool:
        """Return whether an additional poll of a queue may be sent now."""
        return self.has_more(queue) and self._room.is_left_for_another(queue)

    def wait_for_room(self, seconds: float) -> None:
        """Wait until there may be room for an additional poll, at most for so long."""
        self._freed.wait(seconds)

    def note_end(self, poll: Poll, *, is_full: bool) -> None:
        """Note whether a poll returned all messages that it requested. A failed one did not."""
        self._open.discard(poll)
        if is_full:
            self._full.add(poll.queue)
        else:
            self._full.discard(poll.queue)
        self._change.set()

    def poll_more(self) -> None:
        """Have queues polled for which there may be room now. Can be called from any thread."""
        self._change.set()
        if self._full:
            self._freed.set()

    def _is_any_due(self) -> bool:
        queues = self._kombu.queues()
        return self._kombu.has_slot() and (not queues or any(map(self.is_due, queues)))

"""Decides when a channel's queues are polled on the event loop."""

from __future__ import annotations

import threading
from typing import Any

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_room import PollRoom
from celery_sqs_heartbeat.transport.wakeable_loop import make_wakeable

#: How often to check whether a queue that waits for a prefetch slot can be polled, and the delay
#: after a failed poll, in seconds. A polling interval, if set, replaces both.
_LOOK_AGAIN = 1.0
#: The longest that a poll waits until it is worth a receive, in seconds. Messages that wait in the
#: worker may be due much later, so that the pool has nothing to do.
_GATHER_SECONDS = 0.05


class Schedule:
    """Polls queues as soon as there is room for more messages.

    Each consumed queue has an open poll, or a call that will poll it. Additional polls end when
    they are answered, unless there is room for another (`PollRoom`).
    """

    def __init__(
        self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls, room: PollRoom
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._room = room
        #: The thread of the event loop.
        self._thread = 0
        #: The timers of the queues that wait for more prefetch slots.
        self._waiting: dict[str, Any] = {}
        #: Those that have a slot, and wait for as many as are worth a receive.
        self._gathering: set[str] = set()
        #: The queues that pause after a failed poll.
        self._pausing: set[str] = set()
        #: The queues whose last answer was full.
        self._full: set[str] = set()
        #: The queues that will be polled in the event loop's next tick, because an ack made room.
        self._called: set[str] = set()

    def is_due(self, queue: str) -> bool:
        """Return whether to poll a queue now.

        If it has no open poll, it will be polled when a prefetch slot is free.
        """
        self._thread = threading.get_ident()
        self._called.discard(queue)
        if not self._kombu.is_consumed(queue) or self._heartbeat.is_ending:
            return False
        if self._open.waiting_for(queue):
            return self.is_due_beside(queue)
        if queue in self._pausing or queue in self._waiting:
            return False
        if not self._kombu.has_slot():
            # kombu checks again after a whole polling interval (since 5.7), or continuously
            # (before). No event reports a change of the slot count or the backlog of deletes, so a
            # timer checks.
            self._wait(queue, self._look_again_after())
            self._heartbeat.polled.wait(queue)
            return False
        is_first = queue not in self._gathering
        if queue in self._full and is_first and not self._room.is_worth_a_poll(queue):
            self._gathering.add(queue)
            self._wait(queue, _GATHER_SECONDS)
            return False
        self._gathering.discard(queue)
        return True

    def is_due_beside(self, queue: str) -> bool:
        """Return whether to poll a queue now, although it has an open poll."""
        return queue in self._full and self._room.is_left_beside(queue)

    def note_answer(self, poll: Poll, received: int) -> None:
        """Note how many messages a poll returned."""
        if received >= poll.count:
            self._full.add(poll.queue)
        else:
            self._full.discard(poll.queue)

    def poll_later(self, queue: str) -> None:
        """Poll a queue again after a poll of it that failed, if it has no other open poll."""
        self._full.discard(queue)
        if queue not in self._pausing and not self._open.waiting_for(queue):
            self._pausing.add(queue)
            self._kombu.hub.call_later(self._look_again_after(), self._stop_pausing, queue)

    def poll_more(self) -> None:
        """Poll the queues for which there may be room now, unless the worker is ending.

        Can be called from any thread.
        """
        if self._heartbeat.is_ending:
            return
        for queue in list(self._waiting):
            if queue not in self._gathering or self._room.is_worth_a_poll(queue):
                self._stop_waiting(queue)
        for queue in tuple(self._full):
            if queue not in self._called and self._room.is_left_beside(queue):
                self._called.add(queue)
                self._poll_soon(queue)

    def note_cancelled(self, queue: str) -> None:
        """Note that a consumer of the queue was cancelled. It may have been the last one."""
        if not self._kombu.is_consumed(queue):
            self._full.discard(queue)
            self._heartbeat.polled.rest(queue)
            self._heartbeat.groups.leave("consumer closed", queue)

    def _look_again_after(self) -> float:
        return float(self._kombu.polling_interval or _LOOK_AGAIN)

    def _wait(self, queue: str, seconds: float) -> None:
        make_wakeable(self._kombu.hub)
        self._waiting[queue] = self._kombu.hub.call_later(seconds, self._stop_waiting, queue)

    def _stop_waiting(self, queue: str) -> None:
        if timer := self._waiting.pop(queue, None):
            timer.cancel()
            self._poll_soon(queue)

    def _poll_soon(self, queue: str) -> None:
        hub = self._kombu.hub
        if threading.get_ident() == self._thread:
            # After `call_soon`, kombu's loop would first wait for an event or a timer, if this is
            # called by a call or a timer of the loop, as acks are.
            hub.call_later(0, self._kombu.poll, queue)
        else:
            hub.call_soon(self._kombu.poll, queue)

    def _stop_pausing(self, queue: str) -> None:
        self._pausing.discard(queue)
        self._kombu.poll(queue)

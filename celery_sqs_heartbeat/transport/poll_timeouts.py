"""Gives up polls that are not answered in time, so that their queues are polled again."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import GoOn, OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll

logger = logging.getLogger(__name__)

#: How often open polls are checked, in seconds.
_LOOK_SECONDS = 1.0
#: The most time that counts from one check to the next, in seconds. Between two checks, the event
#: loop reads the answers that have arrived. If a solo pool's task blocks it, no more than this
#: counts.
_MOST_SECONDS = 2 * _LOOK_SECONDS


class PollTimeouts:
    """Waits for answers to a channel's polls, but not indefinitely.

    A poll that is given up stays open for as long again. The messages of an answer that was only
    delayed are leased like any others. Then curl aborts the poll. Otherwise a queue that is never
    answered would use up all of kombu's connections. An answer that arrives even later is not read.
    Its messages become visible again when their visibility timeout ends.
    """

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._looked_at: float | None = None

    def watch(self, poll: Poll, go_on: GoOn) -> PollWatcher:
        """Begin to wait for a poll's answer. Return the watcher of its request."""
        self._open.add(poll, go_on)
        if self._kombu.hub and self._looked_at is None:
            self._look_later()
        return PollWatcher(heartbeat=self._heartbeat, poll=poll, open_polls=self._open)

    def _look_later(self) -> None:
        looked_at = self._looked_at = clock.now()
        self._kombu.hub.call_later(_LOOK_SECONDS, lambda: self._look(looked_at))

    def _look(self, looked_at: float) -> None:
        now = clock.now()
        elapsed = min(now - looked_at, _MOST_SECONDS)
        self._looked_at = None
        if self._kombu.is_closed or not self._open:
            return
        self._look_later()
        for poll in self._open:
            poll.watched += min(elapsed, now - poll.sent_at)
            if not poll.is_sent or poll.watched < poll.patience:
                continue
            if poll.is_given_up:
                poll.is_aborted = True
            elif not self._heartbeat.is_ending:
                self._give_up(poll)

    def _give_up(self, poll: Poll) -> None:
        poll.is_given_up, poll.watched = True, 0.0
        self._heartbeat.polled.unanswered(poll.queue, poll.sent_at)
        logger.warning(
            "sqs-heartbeat: a poll of queue %s was not answered within %.0f s: the queue is polled "
            "again. Messages in a lost answer become visible again after their visibility timeout",
            poll.queue,
            poll.patience,
        )
        self._open.go_on_without(poll)


class PollWatcher:
    """Decides about the request of one poll, as a `poll_sending.Watcher`."""

    def __init__(self, *, heartbeat: Heartbeat, poll: Poll, open_polls: OpenPolls) -> None:
        self._heartbeat = heartbeat
        self._poll = poll
        self._open = open_polls

    def may_send(self) -> bool:
        """Return whether the request may be sent now."""
        return not self._heartbeat.is_ending

    def is_aborted(self) -> bool:
        """Return whether the worker no longer waits for the answer."""
        # The same handle may send another request later.
        return self._poll.is_aborted and self._poll in self._open

    def needs_new_connection(self) -> bool:
        """Return whether the connections that are open may be dead."""
        return self._heartbeat.polled.any_unanswered

    def prepared(self) -> None:
        """Note that the request is about to be sent."""
        self._poll.is_sent, self._poll.sent_at, self._poll.watched = True, clock.now(), 0.0

"""Gives up polls that are not answered in time, so that their queues are polled again."""

from __future__ import annotations

import logging
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.receiving import ReceivingChannel

logger = logging.getLogger(__name__)

#: How often open polls are looked at, in seconds.
_LOOK_SECONDS = 1.0
#: The most that counts from one look to the next, in seconds. The event loop reads what has come
#: between two looks; of a standstill, in a solo pool's task, no more than this counts.
_MOST_SECONDS = 2 * _LOOK_SECONDS


class WatchingChannel(ReceivingChannel):
    """The side of a channel that waits for answers to its polls, but not for ever.

    A poll that is given up stays open for as long again: an answer that was only held up is
    leased like any other. Then curl is to abort it, or the connections of a queue that is
    never answered would use up all that kombu has. What comes after that is not read,
    and comes back when its visibility timeout ends.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._looked_at: float | None = None
        super().__init__(*args, **kwargs)

    def _watch(self, poll: Poll, callback: Any) -> _PollWatcher:
        assert self._heartbeat is not None
        self._polls[poll] = callback
        self._heartbeat.open_polls.add(poll)
        if self.hub and self._looked_at is None:
            self._look_later()
        return _PollWatcher(self._heartbeat, poll, self._polls)

    def _look_later(self) -> None:
        self._looked_at = clock.now()
        self.hub.call_later(_LOOK_SECONDS, self._look_at_polls)

    def _look_at_polls(self) -> None:
        now = clock.now()
        assert self._looked_at is not None
        elapsed = min(now - self._looked_at, _MOST_SECONDS)
        self._looked_at = None
        if self.closed or not self._polls:
            return
        self._look_later()
        for poll in list(self._polls):
            poll.watched += min(elapsed, now - poll.sent_at)
            if not poll.is_sent or poll.watched < poll.patience or self._heartbeat is None:
                continue
            if poll.is_given_up:
                poll.is_aborted = True
            elif not self._heartbeat.is_ending:
                self._give_up(poll, self._heartbeat)

    def _give_up(self, poll: Poll, heartbeat: Heartbeat) -> None:
        poll.is_given_up, poll.watched = True, 0.0
        heartbeat.polled.unanswered(poll.queue)
        logger.warning(
            "sqs-heartbeat: a poll of queue %s was not answered within %.0f s: the queue is polled "
            "again; messages that are lost with it come back after their visibility timeout",
            poll.queue,
            poll.patience,
        )
        if callback := self._polls[poll]:
            callback(0)


class _PollWatcher:
    """Decides about the request of one poll."""

    def __init__(self, heartbeat: Heartbeat, poll: Poll, polls: dict[Poll, Any]) -> None:
        self._heartbeat = heartbeat
        self._poll = poll
        self._polls = polls

    def may_send(self) -> bool:
        return not self._heartbeat.is_ending

    def is_aborted(self) -> bool:
        # Another request may be sent by the same handle later.
        return self._poll.is_aborted and self._poll in self._polls

    def prepared(self) -> None:
        self._poll.is_sent, self._poll.sent_at, self._poll.watched = True, clock.now(), 0.0

"""Polls queues as soon as there is room for more messages, and for no more than that."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Any

from botocore.exceptions import ClientError
from vine import transform

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.receiving import log_unreadable, readable
from celery_sqs_heartbeat.transport.sending import sending_for
from celery_sqs_heartbeat.transport.watching import WatchingChannel

logger = logging.getLogger(__name__)

#: How often a queue that waits for a prefetch slot looks by itself, and after how long one whose
#: poll failed is polled again, in seconds, where no polling interval is set.
_LOOK_AGAIN = 1.0
#: The most messages of one receive (SQS API reference, ReceiveMessage).
MAX_RECEIVED = 10


class PollingChannel(WatchingChannel):
    """The side of a channel that decides when a queue is polled, and for how many."""

    def _get_async(self, queue: str, count: int = 1, callback: Any = None) -> Any:
        if not self._leases(queue):
            return super()._get_async(queue, count, callback=callback)
        assert self._heartbeat is not None
        url = self._new_queue(queue)
        name = self.canonical_queue_name(queue)
        poll = self._new_poll(queue, url, count)
        watcher = self._watch(poll, callback)
        answered = transform(self._on_answer, partial(self._go_on, poll, callback), poll)
        answered.on_error = lambda *args: self._on_failed_poll(poll, args[-1])
        try:
            connection = self.asynsqs(queue=name)
            self._heartbeat.http_client = connection._httpclient
            return sending_for(connection, watcher, patience=poll.patience).receive_message(
                name,
                url,
                number_messages=count,
                visibility_timeout=poll.timeout,
                wait_time_seconds=poll.waits,
                callback=answered,
            )
        except ClientError as error:
            # Of a call for credentials, which are renewed where the poll is signed. It is not
            # among kombu's connection errors, and would end the worker.
            self._on_failed_poll(poll, error)
            return None

    def _go_on(self, poll: Poll, callback: Any, count: int) -> None:
        """Have the queue polled again, unless that was done when the poll was given up.

        Not by a channel that was closed: kombu (5.7) asks its connection for the polling interval,
        which is gone, and the error would get into the event loop.
        """
        if not (poll.is_given_up or self.closed or self._is_ending()):
            callback(count)

    def _on_answer(self, poll: Poll, answer: Any) -> int:
        """Lease and deliver what a long poll brought; return how many messages it was."""
        self._forget(poll)
        self._note_answer(poll, answer)
        # kombu makes an empty list of a 5xx answer.
        messages = readable(answer)
        callback = self.connection and self.connection._callbacks.get(poll.queue)
        is_consumed = callback and not self._is_ending()
        if not is_consumed:
            # Before anything is logged: see there.
            self._release_unread(poll, messages)
        self._tell_of_polls(poll.queue, None)
        log_unreadable(poll.queue, answer, messages)
        if not is_consumed:
            return 0
        self._deliver_all(self._lease_all(poll, messages), callback)
        return len(messages)

    def _forget(self, poll: Poll) -> None:
        self._polls.pop(poll, None)
        if self._heartbeat is not None:
            self._heartbeat.open_polls.discard(poll)

    def _on_failed_poll(self, poll: Poll, error: Exception) -> None:
        """Poll again later, after an answer that was an error.

        Left to kombu a receive that is throttled, say, would be the queue's last one. Its way
        to go on, before 5.7, is to poll in the next tick: where signing fails, each tick would
        ask for credentials, and wait for that.
        """
        if poll not in self._polls:
            # It was answered well, and failed after that.
            raise error
        self._forget(poll)
        if self.closed or self._is_ending():
            return
        self._tell_of_polls(poll.queue, error)
        if not poll.is_given_up:
            self.hub.call_later(self._look_again_after(), self._schedule_queue, poll.queue)

    def _look_again_after(self) -> float:
        return float(self.connection.polling_interval or _LOOK_AGAIN)

    def _schedule_queue(self, queue: str) -> None:
        """Poll a queue now, or when a prefetch slot is free."""
        if queue not in self._active_queues or self._is_ending():
            return
        if self.qos.can_consume():
            super()._schedule_queue(queue)
            return
        # kombu looks again after a whole polling interval (since 5.7), or all the time.
        # That the slot count or the backlog of deletes changes is not told: so now and then.
        self._waiting_queues[queue] = self.hub.call_later(
            self._look_again_after(), self._stop_waiting, queue
        )
        if self._heartbeat is not None:
            self._heartbeat.polled.wait(queue)

    def basic_qos(self, *args: Any, **kwargs: Any) -> None:
        """Change the prefetch count; there may be room for more now."""
        super().basic_qos(*args, **kwargs)
        self.poll_waiting_queues()

    def _stop_waiting(self, queue: str) -> None:
        if timer := self._waiting_queues.pop(queue, None):
            timer.cancel()
            self.hub.call_soon(self._schedule_queue, queue)

    def poll_waiting_queues(self) -> None:
        """Poll the queues that wait for a free prefetch slot, unless the worker goes."""
        if self._heartbeat is not None and self._heartbeat.is_ending:
            return
        for queue in list(self._waiting_queues):
            self._stop_waiting(queue)

    def _get_message_estimate(self, max_if_unlimited: int = MAX_RECEIVED) -> int:
        """Return how many messages to ask for: the queues share the free prefetch slots.

        A poll that asks for all of them leaves one to each other queue, so the prefetch
        count is kept to but for one message for each queue beside the first.
        """
        free = self.qos.can_consume_max_estimate()
        if free is None:
            return max_if_unlimited
        now = clock.now()
        asked = sum(poll.count for poll in self._polls if poll.ends_at > now)
        share = math.ceil(free / max(1, len(self._active_queues)))
        return int(max(1, min(max_if_unlimited, share, free - asked)))

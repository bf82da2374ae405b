"""Polls a queue on the event loop."""

from __future__ import annotations

from functools import partial
from typing import Any

from botocore.exceptions import ClientError
from vine import transform

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import GoOn, OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner
from celery_sqs_heartbeat.transport.poll_responses import PollResponseHandler
from celery_sqs_heartbeat.transport.poll_sending import sending_for
from celery_sqs_heartbeat.transport.poll_timeouts import PollTimeouts
from celery_sqs_heartbeat.transport.schedule import Schedule
from celery_sqs_heartbeat.transport.uninterrupted_curl import guard_curl


class Poller:
    """Sends a channel's polls, and has their queues polled again when they are through."""

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        open_polls: OpenPolls,
        receives: PollPlanner,
        intake: PollResponseHandler,
        schedule: Schedule,
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._receives = receives
        self._intake = intake
        self._schedule = schedule
        self._watching = PollTimeouts(kombu=kombu, heartbeat=heartbeat, open_polls=open_polls)

    def poll(self, queue: str, *, count: int, callback: GoOn | None) -> Any:
        """Send a poll, and return kombu's promise of its answer; None where it is not sent.

        Args:
            count: How many messages to ask for.
            callback: Is called with how many it brought, and polls the queue again.
        """
        url = self._kombu.url(queue)
        poll = self._receives.new_poll(queue, url, count=count)
        watcher = self._watching.watch(poll, callback)
        answered = transform(self._on_answer, partial(self._go_on, poll, callback), poll)
        answered.on_error = lambda *args: self._on_failed(poll, args[-1])
        try:
            connection = self._kombu.event_loop_client(queue)
            client = self._heartbeat.http_client = connection._httpclient
            guard_curl(client, self._heartbeat.curl_working)
            return sending_for(connection, watcher, patience=poll.patience).receive_message(
                self._kombu.name_at_sqs(queue),
                url,
                number_messages=poll.count,
                visibility_timeout=poll.timeout,
                wait_time_seconds=poll.waits,
                callback=answered,
            )
        except ClientError as error:
            # Of a call for credentials, which are renewed where the poll is signed. It is not
            # among kombu's connection errors, and would end the worker.
            self._on_failed(poll, error)
            return None

    def _on_answer(self, poll: Poll, answer: Any) -> int:
        self._open.discard(poll)
        self._receives.note_answer(poll, answer)
        consumer = None if self._heartbeat.is_ending else self._kombu.consumer(poll.queue)
        received = self._intake.take(poll, answer, deliver=consumer)
        return received if consumer is not None else 0

    def _go_on(self, poll: Poll, callback: GoOn | None, count: int) -> None:
        """Have the queue polled again, unless that was done when the poll was given up.

        Not by a channel that was closed: kombu (5.7) asks its connection for the polling interval,
        which is gone, and the error would get into the event loop.
        """
        is_over = poll.is_given_up or self._kombu.is_closed or self._heartbeat.is_ending
        if callback is not None and not is_over:
            # Signing the next poll may ask for credentials, and wait for them.
            with self._heartbeat.curl_working.opened():
                callback(count)

    def _on_failed(self, poll: Poll, error: Exception) -> None:
        """Poll again later, after an answer that was an error.

        Left to kombu a receive that is throttled, say, would be the queue's last one. Its way
        to go on, before 5.7, is to poll in the next tick: where signing fails, each tick would
        ask for credentials, and wait for that.
        """
        if poll not in self._open:
            # It was answered well, and failed after that.
            raise error
        self._open.discard(poll)
        if self._kombu.is_closed or self._heartbeat.is_ending:
            return
        self._receives.log(poll.queue, error)
        if not poll.is_given_up:
            self._schedule.poll_later(poll.queue)

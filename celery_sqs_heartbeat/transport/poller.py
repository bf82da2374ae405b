"""Polls a queue on the event loop."""

from __future__ import annotations

from functools import partial
from typing import Any

from botocore.exceptions import ClientError
from vine import transform

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import PollResponseHandler
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import GoOn, OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner
from celery_sqs_heartbeat.transport.poll_sending import sending_for
from celery_sqs_heartbeat.transport.poll_timeouts import PollTimeouts
from celery_sqs_heartbeat.transport.schedule import Schedule
from celery_sqs_heartbeat.transport.uninterrupted_curl import guard_curl


class Poller:
    """Sends a channel's polls, and has their queues polled again after each answer."""

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
        """Send a poll, and return kombu's promise of its answer; None if it is not sent.

        Args:
            count: How many messages to request.
            callback: Polls the queue again. Its argument is the number of messages received.
        """
        url = self._kombu.url(queue)
        is_beside = bool(self._open.waiting_for(queue))
        poll = self._receives.new_poll(queue, url, count=count, is_beside=is_beside)
        watcher = self._watching.watch(poll, partial(self._go_on_without, poll, callback))
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
            # From a call for credentials, which are renewed when the poll is signed. It is not
            # one of kombu's connection errors, and would end the worker.
            self._on_failed(poll, error)
            return None

    def _on_answer(self, poll: Poll, answer: Any) -> int:
        self._open.discard(poll)
        self._receives.note_answer(poll)
        consumer = None if self._heartbeat.is_ending else self._kombu.consumer(poll.queue)
        received = self._intake.take(poll, answer, deliver=consumer)
        self._schedule.note_answer(poll, received)
        return received if consumer is not None else 0

    def _go_on(self, poll: Poll, callback: GoOn | None, count: int) -> None:
        """Poll the queue again, unless that was done when the poll was given up.

        A closed channel does not poll again: kombu (5.7) would ask its connection, which is gone,
        for the polling interval, and the error would reach the event loop.
        """
        is_over = poll.is_given_up or self._kombu.is_closed or self._heartbeat.is_ending
        if callback is not None and not is_over:
            # Signing the next poll may request credentials, and wait for them.
            with self._heartbeat.curl_working.opened():
                callback(count)

    def _go_on_without(self, poll: Poll, callback: GoOn | None, count: int) -> None:
        """Poll the queue of a poll that was given up, unless it has another open poll."""
        self._schedule.note_answer(poll, 0)
        if callback is not None:
            callback(count)

    def _on_failed(self, poll: Poll, error: Exception) -> None:
        """Poll again later, after an error.

        With kombu alone, an error such as a throttled receive would end the queue's polls. Its
        way to continue does not fit either: before 5.7, it polls in the next tick. If signing
        fails, each tick would request credentials, and wait for them. A poll that was given up has
        been counted, and its queue is polled.
        """
        if poll not in self._open:
            # Its answer arrived, and the error came from its handling.
            raise error
        self._open.discard(poll)
        if self._kombu.is_closed or self._heartbeat.is_ending or poll.is_given_up:
            return
        self._receives.note_failure(poll, error)
        self._schedule.poll_later(poll.queue)

"""Polls a queue without an event loop, and waits for the answer."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any

from botocore.exceptions import ClientError

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner
from celery_sqs_heartbeat.transport.poll_responses import PollResponseHandler
from celery_sqs_heartbeat.transport.receive_tries import following


class BlockingPoller:
    """Receives with boto3, in the calling thread."""

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        receives: PollPlanner,
        intake: PollResponseHandler,
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._receives = receives
        self._intake = intake

    def poll(self, queue: str) -> None:
        """Receive from a queue, and deliver the messages.

        Raises:
            Empty: There were none.
        """
        url = self._kombu.url(queue)
        poll = self._receives.new_poll(queue, url, count=self._kombu.how_many())
        parameters = self._parameters(poll, url)
        try:
            # If a role must be assumed, kombu does so here.
            client = self._kombu.client(queue)
            with following(client, poll, lambda: self._receives.note_answer(poll, None)):
                answer = client.receive_message(**parameters)
        except ClientError as error:
            # It is not one of kombu's connection errors, and would end the worker.
            self._receives.log(queue, error)
            raise Empty from error
        self._receives.note_answer(poll, answer)
        deliver = None if self._heartbeat.is_ending else self._deliver_to(queue)
        if not self._intake.take(poll, answer, deliver=deliver):
            raise Empty

    def _parameters(self, poll: Poll, url: str) -> dict[str, Any]:
        system, of_sender = self._kombu.wanted_attributes()
        parameters = {
            "QueueUrl": url,
            "MaxNumberOfMessages": poll.count,
            "WaitTimeSeconds": poll.waits,
            "MessageSystemAttributeNames": system,
        }
        if of_sender:
            parameters["MessageAttributeNames"] = of_sender
        if poll.timeout is not None:
            parameters["VisibilityTimeout"] = poll.timeout
        return parameters

    def _deliver_to(self, queue: str) -> Callable[[dict[str, Any]], object]:
        return lambda payload: self._kombu.deliver(payload, queue)

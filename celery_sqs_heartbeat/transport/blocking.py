"""Polls a queue without an event loop, and waits for the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from celery_sqs_heartbeat.transport.answers import readable
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.blocking_schedule import BlockingSchedule
from celery_sqs_heartbeat.transport.delivery import PollResponseHandler
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner
from celery_sqs_heartbeat.transport.poll_room import PollRoom
from celery_sqs_heartbeat.transport.receive_tries import following


class BlockingPoller:
    """Receives with boto3, in the calling thread."""

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        open_polls: OpenPolls,
        receives: PollPlanner,
        intake: PollResponseHandler,
        room: PollRoom,
        schedule: BlockingSchedule,
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._receives = receives
        self._intake = intake
        self._room = room
        self._schedule = schedule
        #: Is held until a poll that is due is among the open ones.
        self._planning = threading.Lock()

    def poll(self, queue: str) -> None:
        """Receive from a queue, and deliver the messages.

        Raises:
            Empty: There were none, or additional polls receive all that there is room for.
        """
        try:
            received = self._poll(queue, is_due=self._schedule.is_due)
        except ClientError as error:
            # It is not one of kombu's connection errors, and would end the worker.
            raise Empty from error
        if not received:
            raise Empty

    def poll_beside(self, queue: str) -> bool:
        """Do the same beside the consumer's thread, if an additional poll is due.

        Return False after an error. If the connection is lost, the consumer's poll finds that out.
        """
        try:
            self._poll(queue, is_due=self._schedule.is_due_beside, is_beside=True)
        except Exception as error:
            self._receives.log(queue, error)
            return False
        return True

    def _poll(self, queue: str, *, is_due: Callable[[str], bool], is_beside: bool = False) -> int:
        """Receive and deliver messages. Return how many there were."""
        url = self._kombu.url(queue)
        with self._planning:
            if not is_due(queue):
                return 0
            poll = self._receives.new_poll(
                queue,
                url,
                count=self._kombu.how_many(),
                is_beside=is_beside or bool(self._open.waiting_for(queue)),
            )
            self._open.add(poll)
        try:
            answer = self._receive(poll, url)
        except BaseException:
            self._schedule.note_end(poll, is_full=False)
            raise
        tags = [message["ReceiptHandle"] for message in readable(answer)]
        with self._intake.arriving(tags):
            # Not before: until they take slots, no other poll may request as many.
            self._schedule.note_end(poll, is_full=len(tags) >= poll.count)
            deliver = None if self._heartbeat.is_ending else self._kombu.consumer(queue)
            return self._intake.take(poll, answer, deliver=deliver)

    def _receive(self, poll: Poll, url: str) -> Any:
        try:
            # If a role must be assumed, kombu does so here.
            client = self._room.client = self._kombu.client(poll.queue)
            with following(client, poll, lambda: self._receives.note_failure(poll)):
                answer = client.receive_message(**self._parameters(poll, url))
            self._receives.note_answer(poll)
        except (BotoCoreError, ClientError) as error:
            self._receives.note_failure(poll, error)
            raise
        return answer

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

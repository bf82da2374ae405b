"""Polls a queue without an event loop, and waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.poll_planner import PollPlanner
from celery_sqs_heartbeat.transport.poll_responses import PollResponseHandler


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
            with _following(client, poll, lambda: self._receives.note_answer(poll, None)):
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


@contextmanager
def _following(client: Any, poll: Poll, note_failure: Callable[[], None]) -> Iterator[None]:
    """Set the poll's sending time to that of boto3's last try, because boto3 repeats receives.

    It does so after its read timeout, too: 60 s, unless `client-config` sets another.

    Args:
        note_failure: Is called when a try has failed.
    """
    tries = 0

    def note_sending(**_: Any) -> None:
        nonlocal tries
        if tries:
            note_failure()
        tries += 1
        poll.sent_at = clock.now()

    event = "before-send.sqs.ReceiveMessage"
    client.meta.events.register(event, note_sending)
    try:
        yield
    except BotoCoreError:
        note_failure()
        raise
    finally:
        client.meta.events.unregister(event, note_sending)

"""What every way to receive has in common, and the way without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.options import TIMEOUTS
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.leasing import LeasingChannel
from celery_sqs_heartbeat.transport.poll import Poll

logger = get_logger(__name__)

#: As many as SQS lists at once at the most.
_MOST_LISTED = 1_000
#: System attributes of a message that the keeper reads.
REPORTED = ("ApproximateReceiveCount", "SentTimestamp", "ApproximateFirstReceiveTimestamp")

#: For how long a call waits where `client-config` says None, in seconds: botocore's default.
CLIENT_SECONDS = 60


class ReceivingChannel(LeasingChannel):
    """The side of a channel that asks SQS for messages."""

    @property
    def transport_options(self) -> Any:
        """The options of kombu's transport, whose `client-config` sets no call free of timeouts.

        Without an event loop a poll has no other deadline: one that is never answered would be
        the queue's last.
        """
        options = super().transport_options
        config = options.get("client-config") or {}
        endless = [name for name in TIMEOUTS if config.get(name, CLIENT_SECONDS) is None]
        if self._heartbeat is None or not endless:
            return options
        return {**options, "client-config": {**config, **dict.fromkeys(endless, CLIENT_SECONDS)}}

    @property
    def fetch_message_attributes(self) -> Any:
        """What is asked for with each message: what the user wants, and what we report."""
        given = super().fetch_message_attributes
        if self._heartbeat is None:
            return given
        if isinstance(given, dict):
            system = given.get("MessageSystemAttributeNames") or []
            return {**given, "MessageSystemAttributeNames": _with_reported(system)}
        return _with_reported(given if isinstance(given, list) else [])

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue; its attributes are read and checked first."""
        if self._heartbeat is not None and not no_ack:
            try:
                self._prepare(self._heartbeat, queue)
            except ConfigurationError as error:
                self._heartbeat.refuse(error)
                raise
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def _prepare(self, heartbeat: Heartbeat, queue: str) -> None:
        config = BrokerConfig.of_channel(self)
        if not heartbeat.terms.has_begun:
            # All of them now: once the first one is consumed from, the event loop polls it.
            names = heartbeat.start_queues()
            heartbeat.check_names(self._is_listed)
            heartbeat.leased.check({name: self._new_queue(name) for name in names}, config)
        heartbeat.leased.prepare(queue, self._new_queue(queue), config)

    def _is_listed(self, queue: str) -> bool:
        """Return whether SQS listed a queue as this channel was made, or may have left it out."""
        listed = self._queue_cache
        names = {queue, self.canonical_queue_name(queue)}
        return len(listed) >= _MOST_LISTED or not listed.keys().isdisjoint(names)

    def _new_poll(self, queue: str, url: str, count: int = 0) -> Poll:
        heartbeat = self._heartbeat
        assert heartbeat is not None
        timeout = heartbeat.leased.asked_timeout(queue, url)
        waits = heartbeat.terms.longest_wait(queue, timeout, self.wait_time_seconds)
        poll = Poll(
            queue=queue,
            url=heartbeat.leased.lease_url(url),
            sent_at=clock.now(),
            waits=waits,
            count=count,
            timeout=timeout,
        )
        heartbeat.polled.asked(queue, poll.url)
        return poll

    def drain_events(self, *args: Any, **kwargs: Any) -> Any:
        """Poll the queues, if there is room for more messages, where there is no event loop."""
        if self._heartbeat is not None and not self.qos.can_consume():
            for queue in self._active_queues:
                self._heartbeat.polled.wait(queue)
        return super().drain_events(*args, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Stop consuming from a queue."""
        queue = self._tag_to_queue.get(consumer_tag)
        cancelled = super().basic_cancel(consumer_tag)
        if self._heartbeat is not None and queue is not None and queue not in self._active_queues:
            self._heartbeat.polled.rest(queue)
        return cancelled

    def _note_answer(self, poll: Poll, answer: Any) -> None:
        """Note how a poll was answered: with a list, kombu's for a 5xx, or no answer at all."""
        assert self._heartbeat is not None
        if isinstance(answer, dict):
            self._heartbeat.polled.answered(poll.queue)
        elif not poll.is_given_up and clock.now() - poll.sent_at >= poll.patience:
            self._heartbeat.polled.unanswered(poll.queue)

    def _tell_of_polls(self, queue: str, error: Exception | None) -> None:
        """Log what a queue's polls fail of, when that changes."""
        text = None if error is None else f"{type(error).__name__}: {error}"
        if text == self._poll_errors.get(queue):
            return
        self._poll_errors[queue] = text
        if text is None:
            logger.warning("sqs-heartbeat: receiving from queue %s works again", queue)
        else:
            logger.error(
                "sqs-heartbeat: receiving from queue %s fails and is tried on: %s", queue, text
            )

    def _get_bulk(self, queue: str, *args: Any, **kwargs: Any) -> None:
        heartbeat = self._heartbeat
        if heartbeat is None or not self._leases(queue):
            super()._get_bulk(queue, *args, **kwargs)
            return
        url = self._new_queue(queue)
        poll = self._new_poll(queue, url)
        wanted = getattr(self, "get_message_attributes", {})
        parameters = {
            "QueueUrl": url,
            "MaxNumberOfMessages": self._get_message_estimate(),
            "WaitTimeSeconds": poll.waits,
            "MessageSystemAttributeNames": wanted.get(
                "MessageSystemAttributeNames", self.fetch_message_attributes
            ),
        }
        if names := wanted.get("MessageAttributeNames"):
            parameters["MessageAttributeNames"] = names
        if poll.timeout is not None:
            parameters["VisibilityTimeout"] = poll.timeout
        try:
            # Where a role is to be assumed, that is done here.
            client = self.sqs(queue=queue)
            with _following(client, poll, lambda: self._note_answer(poll, None)):
                answer = client.receive_message(**parameters)
        except ClientError as error:
            # Not among kombu's connection errors: it would end the worker.
            self._tell_of_polls(queue, error)
            raise Empty from error
        self._note_answer(poll, answer)
        self._tell_of_polls(queue, None)
        messages = readable(answer)
        log_unreadable(queue, answer, messages)
        if not messages:
            raise Empty
        if heartbeat.is_ending:
            self._release_unread(poll, messages)
            return
        payloads = self._lease_all(poll, messages)
        self._deliver_all(payloads, lambda payload: self.connection._deliver(payload, queue))


def _with_reported(names: Any) -> Any:
    return list(dict.fromkeys([*names, *REPORTED])) if isinstance(names, list) else names


@contextmanager
def _following(client: Any, poll: Poll, note_failure: Callable[[], None]) -> Iterator[None]:
    """Have the poll's sending time be that of boto3's last try: it repeats a receive by itself.

    After its read timeout, that is, too: 60 s, where `client-config` sets no other.

    Args:
        note_failure: Called when a try has failed.
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


def _messages(answer: Any) -> list[Any]:
    messages = answer.get("Messages") if isinstance(answer, dict) else None
    return messages if isinstance(messages, list) else []


def readable(answer: Any) -> list[dict[str, Any]]:
    """Return the messages of an answer that can be leased at all: those with ids."""
    return [
        message
        for message in _messages(answer)
        if isinstance(message, dict)
        and all(
            isinstance(each := message.get(name), str) and each
            for name in ("MessageId", "ReceiptHandle")
        )
    ]


def log_unreadable(queue: str, answer: Any, messages: list[dict[str, Any]]) -> None:
    """Log how many messages of an answer are not among its readable ones."""
    received = len(_messages(answer))
    if len(messages) < received:
        logger.error(
            "sqs-heartbeat: %d of %d messages received from %s have no message id or receipt "
            "handle: nothing can be done with them, nor are they lost",
            received - len(messages),
            received,
            queue,
        )

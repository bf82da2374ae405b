"""The private side of kombu's SQS channel, under our own names, and our changes to its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kombu
from kombu.transport import SQS

from celery_sqs_heartbeat.sqs.long_polls import ANSWER_SECONDS
from celery_sqs_heartbeat.sqs.options import TIMEOUTS

#: System attributes of a message that the keeper reads.
REPORTED = (
    "ApproximateReceiveCount",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    # SQS omits attributes that a message does not have.
    "MessageGroupId",
    "SequenceNumber",
)
#: The timeout of a call if `client-config` says None, in seconds: botocore's default.
CLIENT_SECONDS = 60.0
#: What `client-config` says unless the user sets it. Each poll needs a connection of its own, and
#: botocore has ten.
_POLLS = {"max_pool_connections": 1_000}
#: The most queues that SQS lists in one answer.
_MOST_LISTED = 1_000
#: Whether kombu deletes messages that are rejected without requeue.
_DELETES_REJECTED = kombu.VERSION >= (5, 7)

#: A received message, as kombu decodes it.
Payload = dict[str, Any]


class KombuChannel(SQS.Channel):
    """kombu's channel with our options, and with names of our own for its private side."""

    @property
    def transport_options(self) -> Any:
        """The options of kombu's transport, with a timeout for every call."""
        options = super().transport_options
        wait = options.get("wait_time_seconds", self.default_wait_time_seconds)
        return with_timeouts(options, wait=wait)

    @property
    def fetch_message_attributes(self) -> Any:
        """The attributes to request with each message: the user's, and those that we report."""
        return with_reported(super().fetch_message_attributes)

    @property
    def get_message_attributes(self) -> Any:
        """The attributes to request with each message, by kind. kombu 5.5 does not ask for them.

        All of the sender's are requested: a message that is sent again must have them.
        """
        wanted = getattr(super(), "get_message_attributes", {})
        return {**wanted, "MessageAttributeNames": [".*"]}

    @property
    def lost_errors(self) -> tuple[type[BaseException], ...]:
        """The errors that a lost connection or channel raises; none if the channel is closed."""
        connection = self.connection
        return tuple(connection.connection_errors + connection.channel_errors) if connection else ()

    def is_leased(self, queue: str) -> bool:
        """Return whether the messages of a queue are leased.

        They are not if they are deleted on receive. Nor are messages that a user gets one by
        one, because no one has to ack them.
        """
        return queue in self._active_queues and queue not in self._noack_queues

    def leased_queues(self) -> list[str]:
        """Return the queues that are consumed from with leases."""
        return list(filter(self.is_leased, list(self._active_queues)))

    def is_listed(self, queue: str) -> bool:
        """Return whether SQS listed a queue when the channel was made, or may have omitted it."""
        listed = self._queue_cache
        names = {queue, self.canonical_queue_name(queue)}
        return len(listed) >= _MOST_LISTED or not listed.keys().isdisjoint(names)

    def queue_url(self, queue: str) -> str:
        """Return a queue's URL. Create the queue if it does not exist."""
        return str(self._new_queue(queue))

    def consumer(self, queue: str) -> Callable[[Payload], object] | None:
        """Return the callback for a queue's messages; None if its consumer or channel is gone."""
        connection = self.connection
        return connection._callbacks.get(queue) if connection else None

    def decode(self, message: Any, queue: str) -> Payload:
        """Convert a message as SQS returned it to the form that consumers take."""
        payload: Payload = self._message_to_python(message, queue, self.queue_url(queue))
        return payload

    def wanted_attributes(self) -> Mapping[str, Any]:
        """Return what to request with each message, see `BotoSqs.receive`."""
        system = {"MessageSystemAttributeNames": self.fetch_message_attributes}
        return {**system, **self.get_message_attributes}

    def takes_slot(self, delivery_tag: str) -> bool:
        """Return whether a message has a prefetch slot."""
        return delivery_tag in self.qos._delivered

    def backoff_delay(self, delivery_tag: str, task: str | None, receives: int) -> float | None:
        """Return the delay of kombu's own backoff policy, in seconds; None if it has none."""
        qos = self.qos
        _, _, tasks, policy = qos._extract_backoff_policy_configuration_and_message(delivery_tag)
        return policy.get(receives) if policy and task in (tasks or ()) else None

    def deletes_rejected(self, delivery_tag: str) -> bool:
        """Return whether kombu deletes a rejected message, on a queue without dead letters."""
        return _DELETES_REJECTED and not self.qos.is_backoff_task(delivery_tag)


def with_timeouts(options: Mapping[str, Any], *, wait: float) -> Mapping[str, Any]:
    """Return the options with a `client-config` that has a timeout and a connection for every poll.

    Args:
        wait: How long a poll waits for messages, in seconds.
    """
    given = options.get("client-config") or {}
    config = {**_POLLS, **given}
    config |= {name: CLIENT_SECONDS for name in TIMEOUTS if config.get(name, 1) is None}
    # An answer arrives at the end of the wait.
    config["read_timeout"] = max(config.get("read_timeout", 0.0), wait + ANSWER_SECONDS)
    return {**options, "client-config": config}


def with_reported(attributes: Any) -> Any:
    """Return the attributes to request with each message: the user's, and those that we report.

    Args:
        attributes: The option `fetch_message_attributes`: a list of names, or a dict of lists.
    """
    if isinstance(attributes, dict):
        system = attributes.get("MessageSystemAttributeNames") or []
        return {**attributes, "MessageSystemAttributeNames": _added_to(system)}
    return _added_to(attributes if isinstance(attributes, list) else [])


def _added_to(names: Any) -> Any:
    return list(dict.fromkeys([*names, *REPORTED])) if isinstance(names, list) else names

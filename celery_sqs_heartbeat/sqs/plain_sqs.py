"""SQS as a program without Celery reaches it: with clients of its own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import short_config
from celery_sqs_heartbeat.sqs.long_polls import ANSWER_SECONDS, MAX_POLLS
from celery_sqs_heartbeat.sqs.sending import guard, prepare_calls

#: What to return with each message. All servers know the older parameter `AttributeNames`.
ATTRIBUTES = {
    "AttributeNames": [
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SentTimestamp",
        "MessageGroupId",
        "SequenceNumber",
    ],
    "MessageAttributeNames": ["All"],
}
#: A call is tried once: its caller repeats it in its own time.
_RETRIES = {"total_max_attempts": 1, "mode": "standard"}


class PlainSqs(BotoSqs):
    """Calls SQS with two clients: one for receives, one for all other calls.

    Args:
        session: Makes the clients. None for boto3's own, whose requests may be repeated.
        options: Of the clients, `config` included.
        threshold: The threshold of the leases, in seconds.
        wait: How long a poll waits, in seconds.
        queues: The number of queues to receive from.
    """

    def __init__(
        self,
        session: boto3.Session | None,
        options: Mapping[str, Any],
        *,
        threshold: float,
        wait: int,
        queues: int,
    ) -> None:
        given = options.get("config") or Config()
        polls = Config(
            read_timeout=wait + ANSWER_SECONDS,
            max_pool_connections=max(1, MAX_POLLS * queues),
            retries=_RETRIES,
        )
        made = session or boto3.Session()
        clients = [
            made.client("sqs", **{**options, "config": given.merge(each)})
            for each in (short_config(threshold), polls)
        ]
        for client in clients:
            guard(client)
            if session is None:
                prepare_calls(client)
        super().__init__(*clients)

    def url_of(self, name: str) -> str:
        """Return the URL of a queue.

        Raises:
            ConfigurationError: SQS knows no such queue.
            Exception: Any other error of boto3.
        """
        client = self._polls(name)
        try:
            return str(client.get_queue_url(QueueName=name)["QueueUrl"])
        except client.exceptions.QueueDoesNotExist as error:
            region = client.meta.region_name
            raise ConfigurationError(
                [
                    f"LeaseKeeper({name!r}): SQS knows no such queue in {region}, or hides it: "
                    "create it, or correct its name, region_name or endpoint_url"
                ]
            ) from error

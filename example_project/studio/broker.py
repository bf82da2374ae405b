"""Reads from the environment which queue both sites use."""

from __future__ import annotations

import functools
import json
import os
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from celery import current_app
from kombu.exceptions import KombuError

#: `sqs://` is AWS, with the credentials of the machine. The simulated server is
#: `sqs://any:thing@127.0.0.1:9324`.
URL = os.environ.get("CELERY_BROKER_URL", "sqs://")
QUEUE = os.environ.get("STUDIO_QUEUE", "studio")
QUEUE_URL = os.environ.get("STUDIO_QUEUE_URL")
#: The errors of a call that SQS does not answer, or refuses.
UNREACHABLE = (BotoCoreError, ClientError, KombuError)


def transport_options() -> dict[str, Any]:
    """Return kombu's `broker_transport_options`."""
    options: dict[str, Any] = {
        # Use plain HTTP only within this machine.
        "is_secure": urlsplit(URL).hostname != "127.0.0.1",
        # If SQS is down, an order fails within 30 s, before gunicorn ends the site's worker. The
        # read timeout is longer than the 10 s of kombu's long polls.
        "client-config": {
            "connect_timeout": 3,
            "read_timeout": 12,
            "retries": {"total_max_attempts": 2},
        },
    }
    if QUEUE_URL:
        # With this, kombu neither lists queues nor creates one.
        options["predefined_queues"] = {QUEUE: {"url": QUEUE_URL}}
    return options


def max_receives() -> int | None:
    """Return after how many receives SQS moves a message to the dead-letter queue.

    Each process asks SQS once: restart the workers after you change the redrive policy. None if
    there is no redrive policy, or if SQS does not answer, because a task should not fail then.
    """
    try:
        return _max_receives()
    except UNREACHABLE:
        return None


@functools.cache
def _max_receives() -> int | None:
    with current_app.connection_for_read() as connection:
        sqs = connection.default_channel.sqs(QUEUE)
        url = QUEUE_URL or sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
        got = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    policy = json.loads(got.get("Attributes", {}).get("RedrivePolicy", "{}"))
    return int(policy["maxReceiveCount"]) if policy else None

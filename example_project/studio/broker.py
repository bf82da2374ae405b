"""Which queue both sites use, from the environment."""

from __future__ import annotations

import functools
import json
import os
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from celery import current_app
from kombu.exceptions import KombuError

#: `sqs://` is AWS with the credentials of the machine. The simulated server is
#: `sqs://any:thing@127.0.0.1:9324`.
URL = os.environ.get("CELERY_BROKER_URL", "sqs://")
QUEUE = os.environ.get("STUDIO_QUEUE", "studio")
QUEUE_URL = os.environ.get("STUDIO_QUEUE_URL")
#: What a call raises when SQS does not answer, or refuses it.
UNREACHABLE = (BotoCoreError, ClientError, KombuError)


def transport_options() -> dict[str, Any]:
    """Return kombu's `broker_transport_options`."""
    options: dict[str, Any] = {
        # Plain HTTP never leaves the machine.
        "is_secure": urlsplit(URL).hostname != "127.0.0.1",
        # Without SQS an order fails within 30 s, after which gunicorn would end the site's
        # worker. Longer than the 10 s for which kombu's polls wait.
        "client-config": {
            "connect_timeout": 3,
            "read_timeout": 12,
            "retries": {"total_max_attempts": 2},
        },
    }
    if QUEUE_URL:
        # kombu then asks neither for a list of queues nor to create one.
        options["predefined_queues"] = {QUEUE: {"url": QUEUE_URL}}
    return options


def max_receives() -> int | None:
    """Return after how many receives SQS moves a message to the dead-letter queue.

    Asked once in each process: restart the workers after a change of the redrive policy. None
    where there is no such policy, or SQS does not answer: that is no reason for a task to fail.
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

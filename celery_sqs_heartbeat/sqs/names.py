"""The names that SQS accepts for queues."""

from __future__ import annotations

import re

from celery_sqs_heartbeat.leases.message import FIFO_SUFFIX

#: SQS API reference, CreateQueue, QueueName. The suffix of a FIFO queue counts as part of the 80.
LONGEST_NAME = 80
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]+")


def is_queue_name(name: str) -> bool:
    """Return whether SQS accepts a name for a queue, standard or FIFO."""
    stem = name.removesuffix(FIFO_SUFFIX)
    return len(name) <= LONGEST_NAME and _CHARACTERS.fullmatch(stem) is not None

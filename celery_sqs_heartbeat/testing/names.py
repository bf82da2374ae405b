"""The names that SQS takes for queues."""

from __future__ import annotations

import re

from celery_sqs_heartbeat.testing.errors import SqsError

#: SQS API reference, CreateQueue, QueueName; the suffix of a FIFO queue counts towards the 80.
_LONGEST = 80
_SUFFIX = ".fifo"
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]+")


def check_name(name: str, *, is_fifo: bool) -> None:
    """Refuse a queue's name that SQS refuses.

    Raises:
        SqsError: It is too long, has other characters, or a suffix of the other kind of queue.
    """
    stem = name.removesuffix(_SUFFIX) if is_fifo else name
    has_suffix = not is_fifo or name.endswith(_SUFFIX)
    if has_suffix and len(name) <= _LONGEST and _CHARACTERS.fullmatch(stem):
        return
    if is_fifo:
        text = (
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length"
        )
    else:
        text = (
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
        if name.endswith(_SUFFIX):
            text += ". A name that ends with .fifo needs the attribute FifoQueue=true"
    raise SqsError("InvalidParameterValue", text)

"""The queue names that SQS accepts."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.message import FIFO_SUFFIX
from celery_sqs_heartbeat.sqs.names import is_queue_name
from celery_sqs_heartbeat.testing.errors import SqsError


def check_name(name: str, *, is_fifo: bool) -> None:
    """Refuse a queue's name that SQS refuses.

    Raises:
        SqsError: It is too long, has other characters, or a suffix of the other kind of queue.
    """
    if is_queue_name(name) and name.endswith(FIFO_SUFFIX) is is_fifo:
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
        if name.endswith(FIFO_SUFFIX):
            text += ". A name that ends with .fifo needs the attribute FifoQueue=true"
    raise SqsError("InvalidParameterValue", text)

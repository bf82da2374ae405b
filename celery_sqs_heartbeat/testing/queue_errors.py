"""The errors of SQS about queues and their attributes."""

from __future__ import annotations

from celery_sqs_heartbeat.testing.errors import SqsError


def unknown_attribute(name: str) -> SqsError:
    """A queue or message has no such attribute, or none to set (LocalStack's AWS snapshots)."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def fifo_attribute(name: str) -> SqsError:
    """Only a FIFO queue has that attribute (LocalStack's AWS snapshots)."""
    if name in ("DeduplicationScope", "FifoThroughputLimit"):
        text = f"You can specify the {name} only when FifoQueue is set to true."
        return SqsError("InvalidAttributeName", text)
    return unknown_attribute(name)


def two_encryptions() -> SqsError:
    """A queue can't have both encryptions (LocalStack's AWS snapshots)."""
    return SqsError(
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. You can either enable "
        "KMS SSE or SQS SSE.",
    )


def wrong_attribute(name: str, reason: str = "") -> SqsError:
    """A value that the attribute can't have (LocalStack's AWS snapshots)."""
    text = f"Invalid value for the parameter {name}."
    return SqsError("InvalidAttributeValue", f"{text} Reason: {reason}." if reason else text)


def other_queue(attribute: str) -> SqsError:
    """A queue of that name exists with another value (LocalStack's AWS snapshots)."""
    return SqsError(
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute "
        f"{attribute}",
    )


def deleted_recently() -> SqsError:
    """SQS API reference, CreateQueue, QueueDeletedRecently."""
    return SqsError(
        "AWS.SimpleQueueService.QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name.",
    )


def purge_in_progress(name: str) -> SqsError:
    """SQS API reference, PurgeQueue, PurgeQueueInProgress."""
    return SqsError(
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
        403,
    )

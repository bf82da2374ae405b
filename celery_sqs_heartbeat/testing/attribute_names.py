"""The names of attributes that can be asked for (SQS API reference, of the action)."""

from __future__ import annotations

from collections.abc import Iterable

from celery_sqs_heartbeat.testing.attribute_values import READERS
from celery_sqs_heartbeat.testing.queue_errors import unknown_attribute

#: GetQueueAttributes, AttributeNames.
OF_QUEUES = frozenset(
    (
        *READERS,
        "All",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
        "RedrivePolicy",
    )
)
#: ReceiveMessage, MessageSystemAttributeNames. AWS was seen to take "ALL", too, and kombu sends it.
OF_MESSAGES = frozenset(
    (
        "AWSTraceHeader",
        "ALL",
        "All",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "DeadLetterQueueSourceArn",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
        "SqsManagedSseEnabled",
    )
)
#: ReceiveMessage, AttributeNames: the reference has both as valid; a queue's do not come.
OF_RECEIVES = OF_MESSAGES | OF_QUEUES


def check_names(names: Iterable[str], known: frozenset[str]) -> None:
    """Refuse to show attributes that SQS does not know.

    Raises:
        SqsError: There are such.
    """
    for name in names:
        if name not in known:
            raise unknown_attribute(name)

"""The names of attributes that a request may name (SQS API reference, of the action)."""

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
#: ReceiveMessage, MessageSystemAttributeNames. AWS also accepts "ALL", and kombu sends it.
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
#: ReceiveMessage, AttributeNames: the reference lists both as valid. SQS does not return a queue's.
OF_RECEIVES = OF_MESSAGES | OF_QUEUES


def check_names(names: Iterable[str], known: frozenset[str]) -> None:
    """Check that SQS knows the attributes.

    Raises:
        SqsError: It does not know one of them.
    """
    for name in names:
        if name not in known:
            raise unknown_attribute(name)

"""The messages that SQS accepts: their size, characters and ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing import characters, errors, message_attributes
from celery_sqs_heartbeat.testing.errors import SqsError

#: The largest message, and the largest batch, in bytes (SQS API reference, SendMessage and
#: SendMessageBatch).
LARGEST = 1_048_576
#: SQS API reference, SendMessage, MessageGroupId and MessageDeduplicationId.
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def size_of(body: str, attributes: Mapping[str, Any]) -> int:
    """Return how many bytes of the limit a message takes."""
    return characters.size_of(body) + message_attributes.size_of(attributes)


def check_message(request: Mapping[str, Any], largest: int) -> None:
    """Refuse a message that SQS refuses, whatever the queue's type.

    Args:
        request: Of SendMessage, or an entry of SendMessageBatch.
        largest: The queue's limit, in bytes.

    Raises:
        SqsError: It is empty or too large, or has characters, attributes or ids that SQS does
            not accept.
    """
    body, attributes = request["MessageBody"], request.get("MessageAttributes") or {}
    if not body:
        raise errors.missing("MessageBody")
    if not characters.are_allowed(body):
        raise SqsError("InvalidMessageContents", characters.REFUSAL)
    message_attributes.check_attributes(attributes)
    message_attributes.check_system_attributes(request.get("MessageSystemAttributes") or {})
    if size_of(body, attributes) > largest:
        raise errors.invalid(
            f"One or more parameters are invalid. Reason: Message must be shorter than {largest} "
            "bytes."
        )
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        _check_id(name, request.get(name))


def check_batch_size(entries: Any) -> None:
    """Refuse a batch whose messages are too large together.

    Raises:
        SqsError: They are too large.
    """
    size = sum(size_of(e["MessageBody"], e.get("MessageAttributes") or {}) for e in entries or ())
    if size > LARGEST:
        raise SqsError(
            "AWS.SimpleQueueService.BatchRequestTooLong",
            f"Batch requests cannot be longer than {LARGEST} bytes. You have sent {size} bytes.",
        )


def _check_id(name: str, value: str | None) -> None:
    if value is not None and not _ID.fullmatch(value):
        text = (
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length"
        )
        raise errors.out_of_range(name, value, text)

"""What SQS takes as a message: its size, its characters, its attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.errors import SqsError

#: The largest message, and the largest batch, in bytes (SQS API reference, SendMessage and
#: SendMessageBatch).
LARGEST = 1_048_576
#: SQS Developer Guide, "Amazon SQS message metadata".
_MOST_ATTRIBUTES = 10
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?")
#: SQS API reference, SendMessage, MessageBody.
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: SQS API reference, SendMessage, MessageGroupId and MessageDeduplicationId.
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def size_of(body: str, attributes: Mapping[str, Any]) -> int:
    """Return how many bytes of the limit a message takes: names, types and values count."""
    size = len(body.encode("utf-8", "surrogatepass"))
    for name, value in attributes.items():
        data = value.get("StringValue") or value.get("BinaryValue") or ""
        size += len(name.encode()) + len(str(value.get("DataType")).encode())
        size += len(data.encode() if isinstance(data, str) else data)
    return size


def check_message(body: str, attributes: Mapping[str, Any], largest: int) -> None:
    """Refuse a message that SQS refuses.

    Raises:
        SqsError: It is empty or too large, or has characters or attributes that SQS does not
            take.
    """
    if not body:
        raise errors.missing("MessageBody")
    if _REFUSED.search(body):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    if len(attributes) > _MOST_ATTRIBUTES:
        raise SqsError(
            "InvalidParameterValue",
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [10].",
        )
    for name, value in attributes.items():
        if not _TYPE.fullmatch(str(value.get("DataType"))):
            raise SqsError(
                "InvalidParameterValue",
                f"The type of message (user) attribute '{name}' is invalid. You must use only the "
                "following supported type prefixes: Binary, Number, String.",
            )
    if size_of(body, attributes) > largest:
        raise SqsError(
            "InvalidParameterValue",
            f"One or more parameters are invalid. Reason: Message must be shorter than {largest} "
            "bytes.",
        )


def check_id(name: str, value: str | None) -> None:
    """Refuse a group's or a deduplication id that SQS refuses.

    Raises:
        SqsError: It is too long or has other characters.
    """
    if value is not None and not _ID.fullmatch(value):
        text = (
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length"
        )
        raise errors.out_of_range(name, value, text)


def check_batch_size(entries: Any) -> None:
    """Refuse a batch of messages that are too large together.

    Raises:
        SqsError: They are.
    """
    size = sum(size_of(e["MessageBody"], e.get("MessageAttributes") or {}) for e in entries or ())
    if size > LARGEST:
        raise SqsError(
            "AWS.SimpleQueueService.BatchRequestTooLong",
            f"Batch requests cannot be longer than {LARGEST} bytes. You have sent {size} bytes.",
        )

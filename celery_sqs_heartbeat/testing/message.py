"""A message in a simulated queue, and what SQS accepts in one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.testing.errors import SqsError, invalid, missing

#: The largest message, and the largest batch, in bytes (SQS API reference, SendMessage and
#: SendMessageBatch).
LARGEST = 1_048_576
#: SQS Developer Guide, "Message metadata".
_MOST_ATTRIBUTES = 10
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ATTRIBUTE_TYPE = re.compile(r"(String|Number|Binary)(\..+)?")
#: SQS API reference, SendMessage, MessageBody.
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: SQS API reference, SendMessage, MessageGroupId and MessageDeduplicationId.
_ID = re.compile(r"[!-~]{1,128}")


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedMessage:
    """One message. Times in seconds of the simulation's clock.

    Attributes:
        visible_at: The time from which it may be received.
        received_at: When it was last received; the 12 hours count from here.
        handle: The receipt handle of its last receive; earlier ones are stale.
        is_deleted: A deleted message is remembered for as long as its handles.
    """

    message_id: str
    body: str = field(repr=False)
    sent_at: float
    visible_at: float
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    group_id: str | None = None
    deduplication_id: str | None = None
    sequence_number: int = 0
    receive_count: int = 0
    first_received_at: float | None = None
    received_at: float = 0.0
    handle: str = field(default="", repr=False)
    is_deleted: bool = False

    @property
    def md5(self) -> str:
        """The checksum that SQS sends with bodies."""
        return hashlib.md5(self.body.encode(), usedforsecurity=False).hexdigest()

    def is_in_flight(self, now: float) -> bool:
        """Return whether it was received and is still hidden."""
        return self.receive_count > 0 and not self.is_deleted and self.visible_at > now

    def receive(self, handle: str, now: float, timeout: float) -> None:
        """Hide it under a new handle."""
        self.handle = handle
        self.receive_count += 1
        self.received_at = now
        self.visible_at = now + timeout
        if self.first_received_at is None:
            self.first_received_at = now

    def as_answer(
        self, epoch: float, names: Collection[str], system_names: Collection[str]
    ) -> dict[str, Any]:
        """Return it as an item of ReceiveMessage's answer.

        Args:
            epoch: The Unix time of the clock's zero.
            names: The message attributes to show. "All" and "prefix.*" are accepted (LocalStack's
                AWS snapshots: "*", too, and the prefix is without the period).
            system_names: The system attributes to show.
        """
        answer: dict[str, Any] = {
            "MessageId": self.message_id,
            "ReceiptHandle": self.handle,
            "Body": self.body,
            "MD5OfBody": self.md5,
        }
        if system := self._system_attributes(epoch, system_names):
            answer["Attributes"] = system
        begins = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
        is_all = not {"All", "*"}.isdisjoint(names)
        chosen = {
            name: value
            for name, value in self.attributes.items()
            if is_all or name in names or name.startswith(begins)
        }
        if chosen:
            answer["MessageAttributes"] = chosen
        return answer

    def _system_attributes(self, epoch: float, names: Collection[str]) -> dict[str, str]:
        first = self.sent_at if self.first_received_at is None else self.first_received_at
        system = {
            "ApproximateReceiveCount": str(self.receive_count),
            "ApproximateFirstReceiveTimestamp": str(round((epoch + first) * 1000)),
            "SentTimestamp": str(round((epoch + self.sent_at) * 1000)),
            "SenderId": "AIDASIMULATED",
        }
        if self.group_id is not None:
            system["MessageGroupId"] = self.group_id
        if self.deduplication_id is not None:
            # Only messages of a FIFO queue have one.
            system["MessageDeduplicationId"] = self.deduplication_id
            system["SequenceNumber"] = str(self.sequence_number)
        if not {"All", "ALL"}.isdisjoint(names):
            return system
        return {name: value for name, value in system.items() if name in names}


def check_batch_size(entries: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a batch whose messages are too large together.

    Raises:
        SqsError: They are too large.
    """
    size = sum(map(_size_of, entries))
    if size > LARGEST:
        text = f"Batch requests cannot be longer than {LARGEST} bytes. You have sent {size} bytes."
        raise SqsError("AWS.SimpleQueueService.BatchRequestTooLong", text)


def _size_of(request: Mapping[str, Any]) -> int:
    """Return how many bytes of the limit a message takes: body, and attributes with their types."""
    parts = [request["MessageBody"]]
    for name, value in (request.get("MessageAttributes") or {}).items():
        data = value.get("StringValue") or value.get("BinaryValue") or ""
        parts += [name, value.get("DataType", ""), data]
    return sum(len(p.encode(errors="replace") if isinstance(p, str) else p) for p in parts)


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
        raise missing("MessageBody")
    if _REFUSED.search(body):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    if len(attributes) > _MOST_ATTRIBUTES:
        text = f"[{len(attributes)}] exceeds the allowed maximum [{_MOST_ATTRIBUTES}]."
        raise SqsError("InvalidParameterValue", f"Number of message attributes {text}")
    for name, value in attributes.items():
        _check_attribute(name, value)
    if _size_of(request) > largest:
        text = "One or more parameters are invalid. Reason: Message must be shorter than"
        raise SqsError("InvalidParameterValue", f"{text} {largest} bytes.")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        value = request.get(name)
        if value is not None and not _ID.fullmatch(value):
            reason = "It can only include alphanumeric and punctuation characters. 1 to 128 long"
            raise invalid(name, value, reason)


def _check_attribute(name: str, value: Mapping[str, Any]) -> None:
    kind = value.get("DataType") or ""
    if not _ATTRIBUTE_NAME.fullmatch(name):
        reason = "letters, digits, periods, hyphens and underscores, 1 to 256 of them"
        text = f"The name of message attribute '{name}' can only have {reason}."
    elif not _ATTRIBUTE_TYPE.fullmatch(kind):
        text = (
            f"The type of message attribute '{name}' is invalid. You must use only the following "
            "supported type prefixes: Binary, Number, String."
        )
    elif not value.get("BinaryValue" if kind.startswith("Binary") else "StringValue"):
        text = f"Message attribute '{name}' must contain a non-empty value of type '{kind}'."
    else:
        return
    raise SqsError("InvalidParameterValue", text)

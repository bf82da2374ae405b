"""A message in a simulated queue."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedMessage:
    """One message. Times in seconds of the simulation's clock.

    Attributes:
        visible_at: The time from which it may be received.
        received_at: When it was last received; the 12 hours count from here.
        handle: The receipt handle of its last receive; earlier ones are stale.
        kept_since: The time from which its retention counts, if that is not `sent_at`.
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
    kept_since: float | None = None

    @property
    def retained_from(self) -> float:
        """The time from which the queue's retention period counts."""
        return self.sent_at if self.kept_since is None else self.kept_since

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

    def as_answer(self, epoch: float, names: Collection[str] = ()) -> dict[str, Any]:
        """Return it as an item of ReceiveMessage's answer, with all system attributes.

        `names` are the message attributes to show. "All" and "prefix.*" are accepted
        (LocalStack's AWS snapshots: "*", too, and the prefix is without the period).
        `epoch` is the Unix time of the clock's zero. After a single receive the
        first-receive time is the time of that receive (SQS API reference, ReceiveMessage).
        """
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
        return {
            "MessageId": self.message_id,
            "ReceiptHandle": self.handle,
            "Body": self.body,
            "MD5OfBody": md5(self.body),
            "Attributes": system,
            **({"MessageAttributes": shown} if (shown := self._chosen(names)) else {}),
        }

    def _chosen(self, names: Collection[str]) -> dict[str, Any]:
        if {"All", ".*", "*"} & set(names):
            return dict(self.attributes)
        begins = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
        return {
            name: value
            for name, value in self.attributes.items()
            if name in names or name.startswith(begins)
        }


def md5(text: str) -> str:
    """Return the checksum that SQS sends with bodies and boto3 verifies."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

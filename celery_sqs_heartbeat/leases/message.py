"""Reads a received message: its attributes, and its task. Orders those of a message group."""

from __future__ import annotations

import base64
import json
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.leases.events import HANDED_ON, LOSSES, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease

#: A message as SQS returned it.
Message = dict[str, Any]

#: How the names of FIFO queues end (SQS API reference, CreateQueue, QueueName).
FIFO_SUFFIX = ".fifo"

#: Cause of releasing a waiting message: an earlier message of its group stopped the group.
GROUP_STOPPED = "group stopped"
#: Cause of releasing a waiting message: its lease is near its end.
WAITED_LONG = "waited long"
#: Cause of releasing a message: there was no room for it to wait.
NO_ROOM = "no room to wait"
#: A message that is released for one of these did not stop its group itself.
_BEHIND = frozenset({GROUP_STOPPED, WAITED_LONG, NO_ROOM})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrived:
    """A received message with its lease, on its way to its consumer.

    Attributes:
        queue: The worker's name for its queue.
        message: As SQS returned it.
    """

    queue: str
    message: Message = field(repr=False)
    lease: Lease

    @property
    def handle(self) -> str:
        """Its receipt handle."""
        return str(self.message["ReceiptHandle"])


def receive_count_of(message: Mapping[str, Any]) -> int:
    """Return how often SQS had delivered the message by then; 1 if SQS did not return it."""
    try:
        return int(message["Attributes"]["ApproximateReceiveCount"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def time_of(message: Mapping[str, Any], attribute: str) -> float | None:
    """Return a timestamp of the message from SQS, in Unix seconds; None without it."""
    try:
        return int(message["Attributes"][attribute]) / 1000
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def group_of(message: Mapping[str, Any]) -> str | None:
    """Return the message's group; None without one. For a fair queue, it is the tenant."""
    return _text_of(message, "MessageGroupId")


def sequence_number_of(message: Mapping[str, Any]) -> str | None:
    """Return the digits that grow within a message group of a FIFO queue; None without them."""
    digits = _text_of(message, "SequenceNumber")
    return digits if digits and digits.isascii() and digits.isdigit() else None


def content_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what its sender put into a message, as plain values: its body and attributes."""
    attributes: dict[str, dict[str, Any]] = message.get("MessageAttributes") or {}
    return {
        "MessageBody": message["Body"],
        "MessageAttributes": {
            name: {
                # boto3 returns binary values as bytes, and kombu's event loop as SQS encodes them.
                key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for key, value in each.items()
                if key in ("DataType", "StringValue", "BinaryValue")
            }
            for name, each in attributes.items()
        },
    }


def is_sent_again(lease: Lease, message: Mapping[str, Any], cause: str) -> bool:
    """Return whether a message must be sent again instead of being released, for a cause.

    SQS would move it to the dead-letter queue, although its task never started, and nothing is
    known to be wrong with it. A FIFO queue would put the copy behind the others of its group.
    """
    is_new = lease.is_last_receive and lease.started_at is None
    can_be_sent = bool(message.get("Body")) and not is_fifo(lease.queue_url)
    return is_new and can_be_sent and cause in HANDED_ON


def task_of(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the task's name and id; None for each that can't be read.

    kombu's body is a JSON object, encoded with Base64 unless the producer has turned that off
    (kombu/transport/SQS.py, `_put`). Celery's protocol 2, the default since 4.0, has both in its
    headers.
    """
    try:
        payload = json.loads(_decoded(message["Body"]))
        # Without properties it is not kombu's, and kombu ignores its headers.
        headers = payload["headers"] if "properties" in payload else {}
        task, task_id = headers.get("task"), headers.get("id")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, None
    return (
        task if isinstance(task, str) else None,
        task_id if isinstance(task_id, str) else None,
    )


def _decoded(body: str) -> str | bytes:
    # A JSON object is no Base64.
    return body if body[:1] == "{" else base64.b64decode(body)


def _text_of(message: Mapping[str, Any], attribute: str) -> str | None:
    try:
        text = message["Attributes"][attribute]
    except (KeyError, TypeError):
        return None
    return text if text and isinstance(text, str) else None


def is_fifo(queue: str) -> bool:
    """Return whether a queue, by its name or URL, is a FIFO queue."""
    return queue.rstrip("/").endswith(FIFO_SUFFIX)


def queue_name(queue_url: str) -> str:
    """Return a queue's name, which is the end of its URL."""
    return queue_url.rstrip("/").rpartition("/")[2]


class GroupOrder:
    """The leases of each message group, in the order in which SQS delivers their messages.

    A message that does not end with a confirmed delete stops its group. The messages behind it must
    be released, the last one first, so that SQS delivers the stopping message before them. A lease
    whose message may be someone else's loses its place: SQS decides which message comes next. A
    newly received message does not wait for an earlier one whose release is unconfirmed, because
    SQS would have delivered that first.

    Only leases that are kept in order have a place, see `Lease.is_in_order`. A group has at most
    ten: SQS returns no more of its messages while one of them is hidden. Not thread-safe.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str | None], list[Lease]] = {}
        self._stopped: list[tuple[Lease, str]] = []

    def add(self, lease: Lease) -> None:
        """Give a lease its place, unless it has one or is not kept in order."""
        if lease.is_in_order:
            lease.has_place = True
            group = self._groups.setdefault(_key(lease), [])
            if lease not in group:
                insort(group, lease, key=_position)

    def first(self, lease: Lease) -> Lease | None:
        """Return the first lease of the lease's group, or None."""
        group = self._groups.get(_key(lease))
        return group[0] if group else None

    def waits_behind(self, lease: Lease) -> bool:
        """Return whether a lease must wait for an earlier one of its group."""
        return lease.is_in_order and any(
            each.goal is not Goal.RELEASE and _position(each) < _position(lease)
            for each in self._groups.get(_key(lease), [])
        )

    def behind(self, lease: Lease) -> list[Lease]:
        """Return the leases behind a lease in its group, the last one first.

        The list is empty if the lease has no place.
        """
        group = self._groups.get(_key(lease), [])
        return group[: group.index(lease) : -1] if lease in group else []

    def is_stopped_by(self, lease: Lease) -> bool:
        """Return whether a lease that is released or let expire is the one that stops its group."""
        return lease.is_in_order and lease.cause not in _BEHIND and not self.waits_behind(lease)

    def stop_behind(self, lease: Lease) -> None:
        """Mark the leases behind a lease for release."""
        self._stopped += [(each, GROUP_STOPPED) for each in self.behind(lease)]

    def end(self, lease: Lease, *, is_deleted: bool) -> None:
        """Remove a lease that has ended.

        Args:
            is_deleted: Whether SQS has confirmed the delete of its message.
        """
        # If its goal is release, it has already stopped its group.
        if not (is_deleted or lease.goal is Goal.RELEASE):
            self.stop_behind(lease)
        lease.has_place = False
        group = self._groups.get(_key(lease), [])
        if lease in group:
            group.remove(lease)
            if not group:
                del self._groups[_key(lease)]

    def note(self, kind: EventKind, lease: Lease) -> None:
        """Update the order after an event of a lease."""
        if kind in LOSSES:
            self.end(lease, is_deleted=False)
        elif kind is EventKind.LEASE_CAP_NEAR and self.waits_behind(lease):
            # It would start with too little time left. After another receive it has all its time.
            self.stop_behind(lease)
            self._stopped.append((lease, WAITED_LONG))

    def take_stopped(self) -> list[tuple[Lease, str]]:
        """Return the leases to release, in the order of release, each with its cause."""
        stopped, self._stopped = self._stopped, []
        return stopped


def _key(lease: Lease) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _position(lease: Lease) -> int:
    return int(lease.sequence_number or 0)

"""The journal's data contract, version 1: the events, and the fields of their lines.

A version may gain fields and events, but the meaning of a field never changes within it. Times
are whole microseconds. A line leaves out a field that is unknown, and `dropped` if it is 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.message import queue_name

VERSION = 1

WORKER_STARTED = "worker-started"
WORKER_STOPPED = "worker-stopped"
KEEPER_LATE = "keeper-late"

OF_WORKERS = (WORKER_STARTED, WORKER_STOPPED, KEEPER_LATE)
OF_MESSAGES = tuple(kind.value for kind in EventKind)
EVENTS = (*OF_WORKERS, *OF_MESSAGES)
RECEIVED = ("message-received",)
PERMISSIONS = ("permission-denied", "permission-granted")
#: Events that may result from a call to SQS. Each counts as one entry of that call.
CALLED = (
    "lease-extended",
    "extension-failed",
    "lease-lost",
    "lease-capped",
    "message-released",
    "message-lapsing",
    "message-deleted",
    "delete-failed",
    "delete-abandoned",
)
#: Events with a visibility timeout that was requested from SQS.
HIDING = (*RECEIVED, "lease-extended", "extension-failed", "message-released")

#: Events, and the fields that their lines may have: name, type in Spark's DDL, unit if it has one,
#: and meaning.
_TABLE = (
    (
        EVENTS,
        f"""
        v int: version of the contract: {VERSION}
        ts bigint us: time of the event, since 1970 in UTC
        mono bigint us: time since the worker's start, by a monotonic clock
        seq bigint: number of the worker's line, from 1; a gap means lost lines
        ev string: the event
        wid string: the worker's id, new at each start
        """,
    ),
    (OF_WORKERS, "dropped bigint lines: lines that the worker has lost so far"),
    (
        (WORKER_STARTED,),
        """
        host string: host name
        pid bigint: process id
        boot string: the host's boot id
        node string: Celery's node name
        pool string: the pool's kind
        concurrency int: maximum number of tasks at once
        settings map<string,string>: settings by name
        versions map<string,string>: versions by package
        """,
    ),
    ((KEEPER_LATE,), "late_us bigint us: how long the keeper was delayed"),
    (
        OF_MESSAGES,
        """
        queue string: name of the queue
        msg string: SQS message id, the same over redeliveries
        dlv string: the delivery: 16 hex digits of its receipt handle's SHA-256
        rc int: SQS's count of the message's receives
        task string: name of the task
        task_id string: Celery's task id
        """,
    ),
    (
        RECEIVED,
        """
        max_rc int: `maxReceiveCount` of the queue's redrive policy, if it has one
        sent bigint us: when the message was sent, by SQS's clock
        first bigint us: when the message was first received, by SQS's clock
        grp string: message group, if the message has one
        sn string: sequence number in a FIFO queue, in digits
        """,
    ),
    (HIDING, "vt int s: requested visibility timeout; for a release, its delay"),
    (
        OF_MESSAGES,
        """
        slack_us bigint us: time left of the lease; negative after its expiry
        held_us bigint us: time since this worker requested the first receive
        ended_us bigint us: time since the delete or release was requested
        cause string: received as `new`, `redelivered` or `finished`; else why it is released or deleted
        """,  # noqa: E501
    ),
    ((*CALLED, *PERMISSIONS), "call bigint: number of the worker's call to SQS"),
    (
        CALLED,
        """
        batch int: messages in that call; the sum of 1/batch counts calls
        lat_us bigint us: time from planning the call to its answer
        err string: SQS's answer, if it was not `done`
        """,
    ),
    (PERMISSIONS, "act string: the denied action: `extend`, `release`, `delete`"),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the journal's lines.

    Attributes:
        type: As in Spark's DDL.
        unit: Unit of a number, or empty.
        events: The events that may have the field.
    """

    name: str
    type: str
    unit: str
    meaning: str
    events: tuple[str, ...]


def _fields() -> Iterator[Field]:
    for events, text in _TABLE:
        for line in text.strip().splitlines():
            head, _, meaning = line.strip().partition(": ")
            name, column, *unit = head.split()
            yield Field(name, column, "".join(unit), meaning, events)


FIELDS = tuple(_fields())

_NAMES = {event: {each.name for each in FIELDS if event in each.events} for event in EVENTS}
#: ASCII only, because task names may contain characters that UTF-8 can't encode.
_encode = json.JSONEncoder(separators=(",", ":")).encode
#: The start and the end of each complete line.
_BEGIN, _END = b'{"v":', b"}\n"
_MICROSECONDS = 1_000_000
_INT64_MAX = 2**63 - 1
_DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The worker of the lines, and the offset of the keeper's clock.

    Attributes:
        wid: The worker's id.
        started_at: When it started, in seconds of the keeper's clock.
        offset: Microseconds from the epoch to that clock's zero, at present.
    """

    wid: str
    started_at: float
    offset: int

    def stamp(self, ev: str, at: float, seq: int) -> dict[str, Any]:
        """Return the fields of every line, for an event at `at` seconds of the keeper's clock."""
        return {
            "v": VERSION,
            "ts": round(at * _MICROSECONDS) + self.offset,
            "mono": round((at - self.started_at) * _MICROSECONDS),
            "seq": seq,
            "ev": ev,
            "wid": self.wid,
        }


def fields_of(event: Event, seq: int, origin: Origin) -> dict[str, Any]:
    """Return the fields of an event's line. It does not contain the receipt handle."""
    ev = event.kind.value
    values = {
        **origin.stamp(ev, event.at, seq),
        "queue": queue_name(event.queue_url),
        "msg": event.message_id,
        "dlv": delivery_id(event.receipt_handle),
        "rc": event.receive_count,
        "task": event.task,
        "task_id": event.task_id,
        "max_rc": event.max_receive_count,
        "sent": microseconds(event.sent_time),
        "first": microseconds(event.first_received_time),
        "grp": event.group,
        "sn": event.sequence_number,
        "vt": event.visibility_timeout,
        "slack_us": microseconds(event.slack),
        "held_us": microseconds(event.held_for),
        "ended_us": microseconds(event.ended_for),
        "cause": event.cause or None,
    }
    if event.action is not None:
        has_failed = event.outcome is not None and event.outcome is not Outcome.DONE
        values |= {
            "act": event.action.value,
            "call": event.call_number,
            "batch": event.batch,
            "lat_us": microseconds(event.seconds),
            "err": event.outcome.value if event.outcome and has_failed else None,
        }
    names = _NAMES[ev]
    return {name: value for name, value in values.items() if value is not None and name in names}


def fields_of_start(identity: Identity, info: WorkerInfo) -> dict[str, Any]:
    """Return the fields of a worker's first line that only this line has."""
    values = {
        "host": identity.host,
        "pid": identity.pid,
        "boot": identity.boot,
        "node": info.node,
        "pool": info.pool,
        "concurrency": info.concurrency,
        "settings": dict(info.settings) or None,
        "versions": dict(info.versions) or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def delivery_id(receipt_handle: str) -> str | None:
    """Return an id of a delivery, which, unlike its receipt handle, permits no action."""
    if not receipt_handle:
        return None
    digest = hashlib.sha256(receipt_handle.encode(errors="surrogatepass"))
    return digest.hexdigest()[:_DIGEST_DIGITS]


def microseconds(seconds: float | None) -> int | None:
    """Return seconds as whole microseconds; None if an int64 can't hold them."""
    if seconds is None or not math.isfinite(seconds * _MICROSECONDS):
        return None
    number = round(seconds * _MICROSECONDS)
    return number if abs(number) <= _INT64_MAX else None


def line_of(fields: dict[str, Any]) -> bytes:
    """Return fields as one line, with a line break."""
    return _encode(fields).encode() + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether a line was written to its end."""
    return line.startswith(_BEGIN) and line.endswith(_END)

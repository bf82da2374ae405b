"""The journal's data contract, version 1: one record per line.

A version may gain fields and events, but the meaning of a field never changes within it. Times
are whole microseconds. A line leaves out a field that is None, and `dropped` if it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.events import EventKind

VERSION = 1

WORKER_STARTED = "worker-started"
WORKER_STOPPED = "worker-stopped"
KEEPER_LATE = "keeper-late"

RECEIVED = frozenset({EventKind.MESSAGE_RECEIVED.value})
PERMISSIONS = frozenset({EventKind.PERMISSION_DENIED.value, EventKind.PERMISSION_GRANTED.value})
#: Events that may result from a call to SQS. Each counts as one entry of that call.
CALLED = frozenset(
    kind.value
    for kind in (
        EventKind.LEASE_EXTENDED,
        EventKind.EXTENSION_FAILED,
        EventKind.LEASE_LOST,
        EventKind.LEASE_CAPPED,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
        EventKind.MESSAGE_DELETED,
        EventKind.DELETE_FAILED,
        EventKind.DELETE_ABANDONED,
    )
)
#: Events with a visibility timeout that was requested from SQS.
HIDING = RECEIVED | {
    EventKind.LEASE_EXTENDED.value,
    EventKind.EXTENSION_FAILED.value,
    EventKind.MESSAGE_RELEASED.value,
}


def _about(
    column: str, unit: str, meaning: str, events: frozenset[str] = frozenset()
) -> Mapping[str, object]:
    """Describe a field: its type in Spark's DDL, and the events that it is limited to."""
    return {"type": column, "unit": unit, "meaning": meaning, "events": events}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The fields of every line."""

    v: int = field(metadata=_about("int", "", f"version of the contract: {VERSION}"))
    ts: int = field(metadata=_about("bigint", "us", "time of the event, since 1970 in UTC"))
    mono: int = field(
        metadata=_about("bigint", "us", "time since the worker's start, by a monotonic clock")
    )
    seq: int = field(
        metadata=_about("bigint", "", "number of the worker's line, from 1; a gap means lost lines")
    )
    ev: str = field(metadata=_about("string", "", "the event"))
    wid: str = field(metadata=_about("string", "", "the worker's id, new at each start"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerRecord(Record):
    dropped: int = field(
        default=0, metadata=_about("bigint", "lines", "lines that the worker has lost so far")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(_WorkerRecord):
    """A worker began its journal."""

    host: str = field(metadata=_about("string", "", "host name"))
    pid: int = field(metadata=_about("bigint", "", "process id"))
    boot: str | None = field(default=None, metadata=_about("string", "", "the host's boot id"))
    node: str | None = field(default=None, metadata=_about("string", "", "Celery's node name"))
    pool: str | None = field(default=None, metadata=_about("string", "", "the pool's kind"))
    concurrency: int | None = field(
        default=None, metadata=_about("int", "", "maximum number of tasks at once")
    )
    settings: Mapping[str, str] | None = field(
        default=None, metadata=_about("map<string,string>", "", "settings by name")
    )
    versions: Mapping[str, str] | None = field(
        default=None, metadata=_about("map<string,string>", "", "versions by package")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(_WorkerRecord):
    """A worker ended its journal: its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperLate(_WorkerRecord):
    """The keeper's thread was delayed."""

    late_us: int = field(metadata=_about("bigint", "us", "how long the keeper was delayed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord(Record):
    """An event of a message or its lease."""

    queue: str = field(metadata=_about("string", "", "name of the queue"))
    msg: str = field(metadata=_about("string", "", "SQS message id, the same over redeliveries"))
    dlv: str | None = field(
        default=None,
        metadata=_about(
            "string", "", "the delivery: 16 hex digits of its receipt handle's SHA-256"
        ),
    )
    rc: int | None = field(
        default=None, metadata=_about("int", "", "SQS's count of the message's receives")
    )
    task: str | None = field(default=None, metadata=_about("string", "", "name of the task"))
    task_id: str | None = field(default=None, metadata=_about("string", "", "Celery's task id"))
    max_rc: int | None = field(
        default=None,
        metadata=_about(
            "int", "", "`maxReceiveCount` of the queue's redrive policy, if it has one", RECEIVED
        ),
    )
    sent: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "when the message was sent, by SQS's clock", RECEIVED),
    )
    first: int | None = field(
        default=None,
        metadata=_about(
            "bigint", "us", "when the message was first received, by SQS's clock", RECEIVED
        ),
    )
    grp: str | None = field(
        default=None,
        metadata=_about("string", "", "message group, if the message has one", RECEIVED),
    )
    sn: str | None = field(
        default=None,
        metadata=_about("string", "", "sequence number in a FIFO queue, in digits", RECEIVED),
    )
    vt: int | None = field(
        default=None,
        metadata=_about(
            "int", "s", "requested visibility timeout; for a release, its delay", HIDING
        ),
    )
    slack_us: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "time left of the lease; negative after its expiry"),
    )
    held_us: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "time since this worker requested the first receive"),
    )
    ended_us: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "time since the delete or release was requested"),
    )
    cause: str | None = field(
        default=None,
        metadata=_about(
            "string",
            "",
            "received as `new`, `redelivered` or `finished`; else why it is released or deleted",
        ),
    )
    act: str | None = field(
        default=None,
        metadata=_about(
            "string", "", "the denied action: `extend`, `release`, `delete`", PERMISSIONS
        ),
    )
    call: int | None = field(
        default=None,
        metadata=_about("bigint", "", "number of the worker's call to SQS", CALLED | PERMISSIONS),
    )
    batch: int | None = field(
        default=None,
        metadata=_about(
            "int", "", "messages in that call; the sum of 1/batch counts calls", CALLED
        ),
    )
    lat_us: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "time from planning the call to its answer", CALLED),
    )
    err: str | None = field(
        default=None,
        metadata=_about("string", "", "SQS's answer, if it was not `done`", CALLED),
    )


#: The record of each event.
EVENTS: Mapping[str, type[Record]] = {
    WORKER_STARTED: WorkerStarted,
    WORKER_STOPPED: WorkerStopped,
    KEEPER_LATE: KeeperLate,
    **{kind.value: MessageRecord for kind in EventKind},
}

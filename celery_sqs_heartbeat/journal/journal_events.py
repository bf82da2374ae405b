"""The journal's data contract: one record a line, of version 1.

A version may gain fields and events; what a field means never changes within it. Times
are whole microseconds. A field that is None (or 0, of `dropped`) is left out of its line.
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
#: Those that may come of a call to SQS and count as one of its entries.
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
#: Those that ask SQS to hide the message for so long.
HIDING = RECEIVED | {
    EventKind.LEASE_EXTENDED.value,
    EventKind.EXTENSION_FAILED.value,
    EventKind.MESSAGE_RELEASED.value,
}


def _about(
    column: str, unit: str, meaning: str, events: frozenset[str] = frozenset()
) -> Mapping[str, object]:
    """Describe a field: its type as Spark's DDL has it, and the events it is limited to."""
    return {"type": column, "unit": unit, "meaning": meaning, "events": events}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every line has."""

    v: int = field(metadata=_about("int", "", f"version of the contract: {VERSION}"))
    ts: int = field(metadata=_about("bigint", "us", "when it happened, since 1970 in UTC"))
    mono: int = field(
        metadata=_about("bigint", "us", "the same since the worker's start, by a steady clock")
    )
    seq: int = field(
        metadata=_about("bigint", "", "number of the worker's lines, from 1; a gap is a lost line")
    )
    ev: str = field(metadata=_about("string", "", "the event"))
    wid: str = field(metadata=_about("string", "", "the worker: one id for each time it starts"))


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
        default=None, metadata=_about("int", "", "tasks at once, at the most")
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
    """The keeper's thread was held up."""

    late_us: int = field(metadata=_about("bigint", "us", "for how long the keeper was held up"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord(Record):
    """Something happened to a message or its lease."""

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
            "int", "", "maxReceiveCount of the queue's redrive policy, where it has one", RECEIVED
        ),
    )
    sent: int | None = field(
        default=None, metadata=_about("bigint", "us", "when it was sent, by SQS's clock", RECEIVED)
    )
    first: int | None = field(
        default=None, metadata=_about("bigint", "us", "when it was first received", RECEIVED)
    )
    grp: str | None = field(
        default=None,
        metadata=_about("string", "", "message group, where the message has one", RECEIVED),
    )
    sn: str | None = field(
        default=None,
        metadata=_about("string", "", "sequence number within a FIFO queue, in digits", RECEIVED),
    )
    vt: int | None = field(
        default=None,
        metadata=_about("int", "s", "visibility timeout asked for; of a release its delay", HIDING),
    )
    slack_us: int | None = field(
        default=None, metadata=_about("bigint", "us", "left of the lease; negative when it is over")
    )
    held_us: int | None = field(
        default=None, metadata=_about("bigint", "us", "since its first receive here was asked for")
    )
    ended_us: int | None = field(
        default=None, metadata=_about("bigint", "us", "since its delete or release was asked for")
    )
    cause: str | None = field(
        default=None,
        metadata=_about(
            "string", "", "received as `new`, `redelivered` or `finished`; why it is given back"
        ),
    )
    act: str | None = field(
        default=None,
        metadata=_about("string", "", "what is denied: `extend`, `release`, `delete`", PERMISSIONS),
    )
    call: int | None = field(
        default=None,
        metadata=_about("bigint", "", "number of the worker's call to SQS", CALLED | PERMISSIONS),
    )
    batch: int | None = field(
        default=None,
        metadata=_about("int", "", "entries of that call: the sum of 1/batch counts calls", CALLED),
    )
    lat_us: int | None = field(
        default=None,
        metadata=_about("bigint", "us", "from planning the call to its answer", CALLED),
    )
    err: str | None = field(
        default=None,
        metadata=_about("string", "", "SQS's answer, where that was not `done`", CALLED),
    )


#: Which record each event has.
EVENTS: Mapping[str, type[Record]] = {
    WORKER_STARTED: WorkerStarted,
    WORKER_STOPPED: WorkerStopped,
    KEEPER_LATE: KeeperLate,
    **{kind.value: MessageRecord for kind in EventKind},
}

"""The journal's data contract, version 1: the events, and the fields of their lines.

A version may gain fields and events, but the meaning of a field never changes within it. Times
are whole microseconds. A line leaves out a field that is unknown, and `dropped` if it is 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action
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
_UNCALLED = (*RECEIVED, "task-started", "lease-expired", "lease-cap-near", *PERMISSIONS)
#: Events that may result from a call to SQS. Each counts as one entry of that call.
CALLED = tuple(ev for ev in OF_MESSAGES if ev not in _UNCALLED)

_GROUPS = {
    "all": EVENTS,
    "worker": OF_WORKERS,
    "started": (WORKER_STARTED,),
    "late": (KEEPER_LATE,),
    "message": OF_MESSAGES,
    "received": RECEIVED,
    # Events with a visibility timeout that was requested from SQS.
    "hiding": (*RECEIVED, "lease-extended", "extension-failed", "message-released"),
    "answered": (*CALLED, *PERMISSIONS),
    "called": CALLED,
    "permission": PERMISSIONS,
}
#: For each field: a group of events, name, type in Spark's DDL, unit if it has one, and meaning. A
#: name is followed by `=` and the attribute of the keeper's `Event` that has the value.
_TABLE = f"""
all v int: version of the contract: {VERSION}
all ts bigint us: time of the event, since 1970 in UTC
all mono bigint us: time since the worker's start, by a monotonic clock
all seq bigint: number of the worker's line, from 1; a gap means lost lines
all ev string: the event
all wid string: the worker's id, new at each start
worker dropped bigint lines: lines that the worker has lost so far
started host string: host name
started pid bigint: process id
started boot string: the host's boot id
started node string: Celery's node name
started pool string: the pool's kind
started concurrency int: maximum number of tasks at once
started settings map<string,string>: settings by name
started versions map<string,string>: versions by package
late late_us bigint us: how long the keeper was delayed
message queue=queue_url string: name of the queue
message msg=message_id string: SQS message id, the same over redeliveries
message dlv=receipt_handle string: the delivery: 16 hex digits of its receipt handle's SHA-256
message rc=receive_count int: SQS's count of the message's receives
message task=task string: name of the task
message task_id=task_id string: Celery's task id
received max_rc=max_receive_count int: `maxReceiveCount` of the queue's redrive policy, if it has one
received sent=sent_time bigint us: when the message was sent, by SQS's clock
received first=first_received_time bigint us: when the message was first received, by SQS's clock
received grp=group string: message group, if the message has one
received sn=sequence_number string: sequence number in a FIFO queue, in digits
hiding vt=visibility_timeout int s: requested visibility timeout; for a release, its delay
message slack_us=slack bigint us: time left of the lease; negative after its expiry
message held_us=held_for bigint us: time since this worker requested the first receive
message ended_us=ended_for bigint us: time since the delete or release was requested
message cause=cause string: received as `new`, `redelivered` or `finished`; else why it is released or deleted
permission act=action string: the denied action: `extend`, `release`, `delete`
answered call=call_number bigint: number of the worker's call to SQS
called batch=batch int: messages in that call; the sum of 1/batch counts calls
called lat_us=seconds bigint us: time from planning the call to its answer
called err=outcome string: SQS's answer, if it was not `done`
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the journal's lines.

    Attributes:
        type: As in Spark's DDL.
        unit: Unit of a number, or empty.
        events: The events that may have the field.
        attribute: The attribute of `Event` that has its value, or empty.
    """

    name: str
    type: str
    unit: str
    meaning: str
    events: tuple[str, ...]
    attribute: str = ""


def _field(row: str) -> Field:
    head, _, meaning = row.partition(": ")
    group, source, column, *unit = head.split()
    name, _, attribute = source.partition("=")
    return Field(name, column, "".join(unit), meaning, _GROUPS[group], attribute)


FIELDS = tuple(map(_field, _TABLE.strip().splitlines()))

#: ASCII only, because task names may contain characters that UTF-8 can't encode.
_encode = json.JSONEncoder(separators=(",", ":")).encode
#: The start and the end of each complete line.
_BEGIN, _END = b'{"v":', b"}\n"
_MICROSECONDS = 1_000_000
#: Microseconds of more seconds would need more than 64 bits.
_MOST_SECONDS = 9e12


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
        ts = round(at * _MICROSECONDS) + self.offset
        mono = round((at - self.started_at) * _MICROSECONDS)
        return {"v": VERSION, "ts": ts, "mono": mono, "seq": seq, "ev": ev, "wid": self.wid}


def fields_of_start(identity: Identity, info: WorkerInfo) -> dict[str, Any]:
    """Return the fields of a worker's first line that only this line has."""
    values = {"host": identity.host, "pid": identity.pid, "boot": identity.boot, **asdict(info)}
    return {name: value for name, value in values.items() if value not in (None, {})}


def delivery_id(receipt_handle: str) -> str | None:
    """Return an id of a delivery, which, unlike its receipt handle, permits no action."""
    if not receipt_handle:
        return None
    return hashlib.sha256(receipt_handle.encode(errors="surrogatepass")).hexdigest()[:16]


def microseconds(seconds: float | None) -> int | None:
    """Return seconds as whole microseconds; None if an int64 can't hold them."""
    # Nor is NaN less than anything.
    if seconds is None or not abs(seconds) < _MOST_SECONDS:
        return None
    return round(seconds * _MICROSECONDS)


def _code(value: Action | Outcome | None) -> str | None:
    """Return what a line has for an action or an outcome: only bad news is worth its bytes."""
    return None if value is None or value is Outcome.DONE else value.value


#: Fields whose values are neither the event's own nor times.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "queue": queue_name,
    "dlv": delivery_id,
    "cause": lambda cause: cause or None,
    "act": _code,
    "err": _code,
}


def _sources(ev: str) -> Iterator[tuple[str, str, Callable[[Any], Any], bool]]:
    """Yield each field of an event's line that comes from the keeper's `Event`.

    With each: the attribute, what makes the field's value of it, and whether only results of
    calls have it.
    """
    for field in FIELDS:
        if field.attribute and ev in field.events:
            as_given = microseconds if field.unit == "us" else lambda value: value
            needs_call = set(field.events) <= {*CALLED, *PERMISSIONS}
            yield field.name, field.attribute, _CONVERT.get(field.name, as_given), needs_call


_SOURCES = {ev: tuple(_sources(ev)) for ev in OF_MESSAGES}


def fields_of(event: Event, seq: int, origin: Origin) -> dict[str, Any]:
    """Return the fields of an event's line. It does not contain the receipt handle."""
    ev, has_call = event.kind.value, event.action is not None
    fields = origin.stamp(ev, event.at, seq)
    for name, attribute, convert, needs_call in _SOURCES[ev]:
        value = convert(getattr(event, attribute)) if has_call or not needs_call else None
        if value is not None:
            fields[name] = value
    return fields


def line_of(fields: dict[str, Any]) -> bytes:
    """Return fields as one line, with a line break."""
    return _encode(fields).encode() + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether a line was written to its end."""
    return line.startswith(_BEGIN) and line.endswith(_END)

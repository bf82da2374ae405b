"""Makes records from a keeper's events, and queues their lines. No caller waits for the disk."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.journal.journal_events import (
    CALLED,
    HIDING,
    PERMISSIONS,
    RECEIVED,
    VERSION,
    MessageRecord,
    Record,
)
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.leases.message import queue_name

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
        """Return the fields of every record, for an event at `at` seconds of the keeper's clock."""
        return {
            "v": VERSION,
            "ts": round(at * _MICROSECONDS) + self.offset,
            "mono": round((at - self.started_at) * _MICROSECONDS),
            "seq": seq,
            "ev": ev,
            "wid": self.wid,
        }


def record_of(event: Event, seq: int, origin: Origin) -> MessageRecord:
    """Return the record of an event. It does not contain the receipt handle."""
    ev = event.kind.value
    has_call = event.action is not None
    is_entry = has_call and ev in CALLED
    failed = event.outcome is not None and event.outcome is not Outcome.DONE
    return MessageRecord(
        **origin.stamp(ev, event.at, seq),
        queue=queue_name(event.queue_url),
        msg=event.message_id,
        dlv=delivery_id(event.receipt_handle),
        rc=event.receive_count,
        task=event.task,
        task_id=event.task_id,
        max_rc=event.max_receive_count if ev in RECEIVED else None,
        sent=microseconds(event.sent_time) if ev in RECEIVED else None,
        first=microseconds(event.first_received_time) if ev in RECEIVED else None,
        grp=event.group if ev in RECEIVED else None,
        sn=event.sequence_number if ev in RECEIVED else None,
        vt=event.visibility_timeout if ev in HIDING else None,
        slack_us=microseconds(event.slack),
        held_us=microseconds(event.held_for),
        ended_us=microseconds(event.ended_for),
        cause=event.cause or None,
        act=event.action.value if event.action and ev in PERMISSIONS else None,
        call=event.call_number if is_entry or (has_call and ev in PERMISSIONS) else None,
        batch=event.batch if is_entry else None,
        lat_us=microseconds(event.seconds) if is_entry else None,
        err=event.outcome.value if event.outcome and failed and is_entry else None,
    )


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


#: Makes a record from a subject, a line number and an origin.
Make = Callable[[Any, int, Origin], Record]


class Backlog:
    """Subjects of lines, numbered in order. Any thread may put them, and one thread takes them.

    Args:
        limit: If this many wait, further ones are lost. Their numbers are then missing from the
            journal.
        last: The number before that of the first line.
        note: Is called with each number that is assigned.

    Attributes:
        bell: Rung when the backlog is half full.
        lost: How many were lost.
    """

    def __init__(
        self, limit: int, last: int = 0, note: Callable[[int], None] = lambda number: None
    ) -> None:
        self._limit = limit
        self._items: deque[tuple[Make, Any, int]] = deque()
        self._lock = threading.Lock()
        self._last = last
        self._note = note
        self.wakeup = AutoResetEvent()
        self.lost = 0

    def put(self, make: Make, subject: Any) -> None:
        """Add a subject, or count it as lost."""
        with self._lock:
            self._last += 1
            self._note(self._last)
            waiting = len(self._items)
            if waiting >= self._limit:
                self.lost += 1
                return
            self._items.append((make, subject, self._last))
        if waiting == self._limit // 2:
            self.wakeup.set()

    def take(self) -> list[tuple[Make, Any, int]]:
        """Remove and return all subjects that wait, in order."""
        return [self._items.popleft() for _ in range(len(self._items))]

"""One message that a worker holds, and what its keeper has written about it in the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.current.table import Flag, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases.lease import Lease, LeaseStatus

_STATUSES = {
    Mark.HELD: LeaseStatus.OWNED,
    Mark.CAPPED: LeaseStatus.CAPPED,
    Mark.REFUSED: LeaseStatus.REFUSED,
    Mark.LOST: LeaseStatus.LOST,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandedOver:
    """A message that the keeper has handed over.

    Attributes:
        queue: The worker's name for its queue.
        message: As SQS returned it.
    """

    queue: str
    message: Mapping[str, Any] = field(repr=False)
    lease: Lease

    @property
    def handle(self) -> str:
        """Its receipt handle."""
        return str(self.message["ReceiptHandle"])


@dataclass(eq=False, slots=True, kw_only=True)
class HeldMessage:
    """A message that the worker holds, or whose end its keeper has not confirmed.

    Attributes:
        number: Identifies it on the link.
        table: Where the keeper writes what SQS has confirmed.
        place: Its place in the table; None if it has no place.
        pid: The process that runs its task; None before the task starts.
        is_delivered: Whether the worker has got it. If not, only its handle is known here, for the
            case that the keeper that has it dies.
        message: The message as SQS returned it, if this is its last receive; see `is_sent_again`.
        seen: Its bytes in the table when the lease was last updated from it.
    """

    lease: Lease
    number: int
    table: Table = field(repr=False)
    place: int | None = None
    pid: int | None = None
    is_delivered: bool = True
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    seen: bytes = field(default=b"", repr=False)

    def refresh(self) -> Lease:
        """Update the lease from the table, and return it."""
        lease = self.lease
        if self.place is None:
            return lease
        written = self.table.written(self.place)
        if written == self.seen:
            # Nothing has changed. To look up the record would take six times as long.
            return lease
        record = self._known_record()
        if record is None:
            return lease
        self.place = self.table.place_of(key_of(lease.handles[0]))
        # The record may have changed between the two reads.
        self.seen = written if Record.unpack(written) == record else b""
        lease.status = _STATUSES.get(record.mark, lease.status)
        lease.expires_at = record.expires_at
        lease.hidden_until = max(lease.hidden_until, record.hidden_until)
        lease.is_exclusive = bool(record.flags & Flag.CERTAIN)
        lease.has_place = not record.flags & Flag.LEFT_GROUP
        lease.extensions = int(bool(record.flags & Flag.EXTENDED))
        if lease.extensions:
            lease.last_timeout = lease.terms.visibility_timeout
        return lease

    def is_over(self) -> bool:
        """Return whether the keeper is done with it."""
        return bool(self._flags() & Flag.OVER)

    def was_released(self) -> bool:
        """Return whether the keeper has sent a release, or is done with it."""
        return bool(self._flags() & (Flag.RELEASING | Flag.OVER))

    def may_be_releasing(self) -> bool:
        """Return whether a release may have been sent."""
        record = self._record()
        if record is None or record.mark is Mark.UNKNOWN:
            # It has no place, or its keeper was killed while it wrote the record.
            return True
        return bool(self._flags() & Flag.RELEASING)

    def _flags(self) -> int:
        record = self._known_record()
        return record.flags if record is not None else 0

    def _known_record(self) -> Record | None:
        record = self._record()
        return None if record is None or record.mark is Mark.UNKNOWN else record

    def _record(self) -> Record | None:
        if self.place is None:
            return None
        return self.table.find(key_of(self.lease.handles[0]))

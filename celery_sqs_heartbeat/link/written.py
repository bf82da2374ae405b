"""Reads the keeper's records of the leases in the table, for the worker."""

from __future__ import annotations

from celery_sqs_heartbeat.current.table import Flag, Mark, Record, Table, key_of
from celery_sqs_heartbeat.leases.lease import Lease, LeaseStatus
from celery_sqs_heartbeat.link.held_message import HeldMessage

_STATUSES = {
    Mark.HELD: LeaseStatus.OWNED,
    Mark.CAPPED: LeaseStatus.CAPPED,
    Mark.REFUSED: LeaseStatus.REFUSED,
    Mark.LOST: LeaseStatus.LOST,
}


class WrittenLeases:
    """The table's records of the messages that a worker holds. Not thread-safe.

    Args:
        table: Where the keeper writes what SQS has confirmed.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def note_written(self, held: HeldMessage) -> None:
        """Note that the worker has just written the record of a held message."""
        if held.place is not None:
            held.seen = self._table.written(held.place)

    def refresh(self, held: HeldMessage) -> Lease:
        """Update the lease of a held message from the table, and return it."""
        lease = held.lease
        if held.place is None:
            return lease
        written = self._table.written(held.place)
        if written == held.seen:
            # Nothing has changed. To look up the record would take six times as long.
            return lease
        record = self._known_record(held)
        if record is None:
            return lease
        # The record may have changed between the two reads.
        held.seen = written if Record.unpack(written) == record else b""
        lease.status = _STATUSES.get(record.mark, lease.status)
        lease.expires_at = record.expires_at
        lease.hidden_until = max(lease.hidden_until, record.hidden_until)
        lease.is_exclusive = held.is_certain and bool(record.flags & Flag.CERTAIN)
        lease.extensions = int(bool(record.flags & Flag.EXTENDED))
        if lease.extensions:
            lease.last_timeout = lease.terms.visibility_timeout
        return lease

    def is_over(self, held: HeldMessage) -> bool:
        """Return whether the keeper is done with a held message."""
        return bool(self._flags(held) & Flag.OVER)

    def is_deleted(self, held: HeldMessage) -> bool:
        """Return whether SQS has confirmed the delete of a held message."""
        return bool(self._flags(held) & Flag.DELETED)

    def was_released(self, held: HeldMessage) -> bool:
        """Return whether the keeper has sent a release of a held message, or is done with it."""
        return bool(self._flags(held) & (Flag.RELEASING | Flag.OVER))

    def may_be_releasing(self, held: HeldMessage) -> bool:
        """Return whether a release of a held message may have been sent."""
        record = self._record(held)
        if record is None or record.mark is Mark.UNKNOWN:
            # It has no place, or its keeper was killed while it wrote the record.
            return True
        return bool(self._flags(held) & Flag.RELEASING)

    def _flags(self, held: HeldMessage) -> int:
        record = self._known_record(held)
        return record.flags if record is not None else 0

    def _known_record(self, held: HeldMessage) -> Record | None:
        record = self._record(held)
        if record is None or record.mark is Mark.UNKNOWN or record.receives < held.receives:
            # The keeper does not know of the latest receive yet.
            return None
        return record

    def _record(self, held: HeldMessage) -> Record | None:
        if held.place is None:
            return None
        return self._table.find(key_of(held.lease.handles[0]))

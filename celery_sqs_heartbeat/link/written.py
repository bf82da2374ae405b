"""What a worker reads in the table of the leases that its keeper keeps."""

from __future__ import annotations

from celery_sqs_heartbeat.current.record import Flag, Mark, Record, key_of
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.leases.lease import Lease, Standing
from celery_sqs_heartbeat.link.holding import Holding

_STANDINGS = {
    Mark.HELD: Standing.OURS,
    Mark.CAPPED: Standing.CAPPED,
    Mark.REFUSED: Standing.UNLEASED,
    Mark.LOST: Standing.LOST,
}


class WrittenLeases:
    """The records of a worker's holdings. Not thread-safe.

    Args:
        table: Where the keeper writes what SQS has confirmed.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def refresh(self, holding: Holding) -> Lease:
        """Bring a holding's lease up to date, and return it."""
        lease = holding.lease
        if holding.place is None:
            return lease
        written = self._table.written(holding.place)
        if written == holding.seen:
            # Nothing has changed, and looking the record up takes six times as long.
            return lease
        record = self._known_record(holding)
        if record is None:
            return lease
        # It may have changed between the two reads.
        holding.seen = written if Record.unpack(written) == record else b""
        lease.standing = _STANDINGS.get(record.mark, lease.standing)
        lease.expires_at = record.expires_at
        lease.hidden_until = max(lease.hidden_until, record.hidden_until)
        lease.certain = holding.is_certain and bool(record.flags & Flag.CERTAIN)
        lease.extensions = int(bool(record.flags & Flag.EXTENDED))
        if lease.extensions:
            lease.last_timeout = lease.terms.visibility_timeout
        return lease

    def is_over(self, holding: Holding) -> bool:
        """Return whether the keeper is through with a holding."""
        return bool(self._flags(holding) & Flag.OVER)

    def is_deleted(self, holding: Holding) -> bool:
        """Return whether SQS has confirmed the delete of a holding's message."""
        return bool(self._flags(holding) & Flag.DELETED)

    def was_released(self, holding: Holding) -> bool:
        """Return whether the keeper has sent a release of a holding, or is through with it."""
        return bool(self._flags(holding) & (Flag.RELEASING | Flag.OVER))

    def may_be_releasing(self, holding: Holding) -> bool:
        """Return whether a release of a holding may have been sent."""
        record = self._record(holding)
        if record is None or record.mark is Mark.UNKNOWN:
            # It has no place, or its keeper was killed while it wrote there.
            return True
        return bool(self._flags(holding) & Flag.RELEASING)

    def _flags(self, holding: Holding) -> int:
        record = self._known_record(holding)
        return record.flags if record is not None else 0

    def _known_record(self, holding: Holding) -> Record | None:
        record = self._record(holding)
        if record is None or record.mark is Mark.UNKNOWN or record.receives < holding.receives:
            # Its keeper does not know of the latest receive yet.
            return None
        return record

    def _record(self, holding: Holding) -> Record | None:
        if holding.place is None:
            return None
        return self._table.find(key_of(holding.lease.handles[0]))

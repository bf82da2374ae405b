"""The layout of a table of leases in shared memory: one process writes the records, many read.

Behind the records, each place has a slot, which the task of that lease writes.
"""

from __future__ import annotations

import struct
import time
from mmap import mmap

from celery_sqs_heartbeat.current.record import KEY_AT, RECORD_BYTES, Mark, Record

#: A record is in one of so many places in a row. In a table that is a quarter full, every lease
#: finds a place. In one that is half full, all except one in some thousands do.
REACH = 16
#: Tries to read a record that is being written. A write takes far less than a microsecond.
TRIES = 1_000

#: The header. Its first byte says whether there are leases without a place. Then follow the time
#: when the writer was last seen at work, and the number of journal lines that it has begun.
_HEADER_BYTES = RECORD_BYTES
_TICK = struct.Struct("<8xd")
_SEQUENCE = struct.Struct("<16xQ")
_ROW_BYTES = REACH * RECORD_BYTES
#: Bytes behind the records for each place, for the task that runs with its lease, see
#: `asked_delays`.
SLOT_BYTES = 40
_PLACE_BYTES = RECORD_BYTES + SLOT_BYTES

_GIVEN_BACK, _UNKNOWN = Record(Mark.GIVEN_BACK), Record(Mark.UNKNOWN)


class Table:
    """Records by key. The key determines the `REACH` places where its record may be.

    Args:
        memory: Its length is that of `size_for`; zeros, or an existing table.
    """

    def __init__(self, memory: mmap) -> None:
        self._memory = memory
        self.places = (len(memory) - _HEADER_BYTES) // _PLACE_BYTES
        self._slots_at = _HEADER_BYTES + self.places * RECORD_BYTES
        # Rows overlap: one begins at every place but the last ones.
        self._rows = self.places - REACH + 1

    @staticmethod
    def size_for(places: int) -> int:
        """Return the size of a table with `places` places, at least `REACH`, in bytes."""
        return _HEADER_BYTES + places * _PLACE_BYTES

    def row(self, key: bytes) -> int:
        """Return the first of the places that a key's record may have."""
        return int.from_bytes(key[:8], "little") % self._rows

    def place_of(self, key: bytes) -> int | None:
        """Return the place of the key's record. Only its writer and its task may rely on it."""
        row = self.row(key)
        at = _HEADER_BYTES + row * RECORD_BYTES
        found = self._memory[at : at + _ROW_BYTES].find(key)
        return None if found < 0 else row + found // RECORD_BYTES

    def write(self, place: int, key: bytes, record: Record) -> None:
        """Write a record, over what is there."""
        at = _HEADER_BYTES + place * RECORD_BYTES
        self._memory[at : at + RECORD_BYTES] = record.pack(key)

    def written(self, place: int) -> bytes:
        """Return the raw bytes at a place: maybe half of a change."""
        at = _HEADER_BYTES + place * RECORD_BYTES
        return self._memory[at : at + RECORD_BYTES]

    def slot(self, place: int) -> bytes:
        """Return what a task has written at a place, maybe the task of an earlier lease."""
        at = self._slots_at + place * SLOT_BYTES
        return self._memory[at : at + SLOT_BYTES]

    def write_slot(self, place: int, written: bytes) -> None:
        """Write the requests of the task whose lease has a place."""
        at = self._slots_at + place * SLOT_BYTES
        self._memory[at : at + SLOT_BYTES] = written

    @property
    def is_short(self) -> bool:
        """Whether there are leases that found no place."""
        return self._memory[0] != 0

    @is_short.setter
    def is_short(self, value: bool) -> None:
        self._memory[0] = value

    @property
    def tick(self) -> float:
        """When its writer was last seen at work, in seconds of its clock; 0.0 before."""
        return float(_TICK.unpack_from(self._memory)[0])

    @tick.setter
    def tick(self, value: float) -> None:
        self._memory[8:16] = struct.pack("<d", value)

    @property
    def sequence(self) -> int:
        """The number of the next line in its writer's journal."""
        return int(_SEQUENCE.unpack_from(self._memory)[0])

    @sequence.setter
    def sequence(self, value: int) -> None:
        self._memory[16:24] = struct.pack("<Q", value)

    def find(self, key: bytes) -> Record | None:
        """Return the record of a claim; None if it has none."""
        return self._find(key)

    def read(self, key: bytes) -> Record:
        """Return what is known of a claim.

        If it has no record, it was released, and another claim has its place by now. But if there
        are leases without a place, it may be one of those.
        """
        record = self._find(key)
        if record is None and self.is_short:
            return _UNKNOWN
        # Look again: it may have been without a place until a moment ago.
        return record or self._find(key) or _GIVEN_BACK

    def _find(self, key: bytes) -> Record | None:
        at = _HEADER_BYTES + self.row(key) * RECORD_BYTES
        for _ in range(TRIES):
            row = self._memory[at : at + _ROW_BYTES]
            found = row.find(key)
            if found < 0:
                return None
            start = found - KEY_AT
            if record := Record.unpack(row[start : start + RECORD_BYTES]):
                return record
            time.sleep(0)
        # Its writer was killed, or stopped, in the middle of it.
        return _UNKNOWN

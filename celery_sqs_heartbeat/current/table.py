"""A table of leases in shared memory: one process writes the records, many read.

Behind the records, each place has a slot, which the task of that lease writes.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import math
import struct
import time
import zlib
from mmap import mmap
from typing import NamedTuple

from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus

KEY_BYTES = 16
_CHECKSUM = struct.Struct("<I")
_FIELDS = struct.Struct(f"<BB2x{KEY_BYTES}sddd8xd")
#: Size of a packed record: a power of two, so no record crosses a line of the CPU's cache.
RECORD_BYTES = _CHECKSUM.size + _FIELDS.size
#: Offset of the key in a packed record.
KEY_AT = _CHECKSUM.size + 4
#: Size of the cache of keys in a process: about one for each task that runs at one time.
_KEYS_AT_HAND = 1_024
#: A record is in one of so many places in a row. In a table that is a quarter full, every lease
#: finds a place. In one that is half full, all except one in some thousands do.
REACH = 16
#: Tries to read a record that is being written, and the seconds between them. A write takes far
#: less than a microsecond, unless its process loses its CPU in the middle, for some milliseconds.
TRIES, PAUSE = 100, 0.001

#: The header. Its first byte says whether there are leases without a place. Then follow the time
#: when the writer was last seen at work, and the number of journal lines that it has begun.
_HEADER_BYTES = RECORD_BYTES
_TICK = struct.Struct("<8xd")
_SEQUENCE = struct.Struct("<16xQ")
_ROW_BYTES = REACH * RECORD_BYTES
#: Bytes behind the records for each place, for the task that runs with its lease, see
#: `current_message`.
SLOT_BYTES = 40
_PLACE_BYTES = RECORD_BYTES + SLOT_BYTES


class Mark(enum.IntEnum):
    """The state of a claim. Its time shows whether it has expired, not its mark."""

    HELD = 1
    #: It reached `max_lease` or SQS's 12 hours and is no longer extended.
    CAPPED = 2
    #: The queue refuses extensions because a permission is missing.
    REFUSED = 3
    #: SQS says that it is no longer ours, or we gave up.
    LOST = 4
    #: Released, dropped or disowned: the message becomes visible again.
    GIVEN_BACK = 5
    #: Its message is being deleted, or has been.
    ACKED = 6
    #: Its task opted out.
    OPTED_OUT = 7
    #: The table had no room for it, or cannot be read.
    UNKNOWN = 8


#: Five times as fast as `Mark(code)`.
_MARK_OF_CODE = {int(mark): mark for mark in Mark}

_MARKS = {
    LeaseStatus.OWNED: Mark.HELD,
    LeaseStatus.EXPIRED: Mark.HELD,
    LeaseStatus.LOST: Mark.LOST,
    LeaseStatus.CAPPED: Mark.CAPPED,
    LeaseStatus.REFUSED: Mark.REFUSED,
}


class Flag(enum.IntFlag):
    """More facts about a lease for its owner."""

    #: No one else can have received the message since its latest receive here.
    CERTAIN = 1
    #: SQS has confirmed an extension since then.
    EXTENDED = 2
    #: A release was sent to SQS, or is about to be, and is not answered. It is never sent twice.
    RELEASING = 4
    #: The keeper is through with it, though its owner may not know yet.
    OVER = 8
    #: SQS has confirmed the delete of its message.
    DELETED = 16
    #: It was lost, and has no place in its message group any more. See `GroupOrder`.
    LEFT_GROUP = 32


#: As numbers: to combine flags would take longer than all the rest of a record.
_CERTAIN, _EXTENDED, _RELEASING, _OVER, _DELETED, _LEFT_GROUP = (int(flag) for flag in Flag)


class Record(NamedTuple):
    """One lease as of its last change. Times are seconds of `clock.now`.

    Attributes:
        visibility_timeout: The timeout that each extension requests, in seconds.
        threshold: An extension is made when less than this is left, in seconds.
        flags: A sum of `Flag`s.
        hidden_until: The latest time until which SQS hides it: no extension may end earlier.
    """

    mark: Mark
    expires_at: float = 0.0
    visibility_timeout: float = 0.0
    threshold: float = 0.0
    flags: int = 0
    hidden_until: float = 0.0

    @classmethod
    def of(cls, lease: Lease, *, is_over: bool = False) -> Record:
        """Return the record of a lease; `is_over` once the book has forgotten it."""
        terms = lease.terms
        mark = _mark_of(lease, is_over)
        flags = (
            lease.is_exclusive * _CERTAIN
            | (lease.extensions > 0) * _EXTENDED
            | (lease.pending is Action.RELEASE) * _RELEASING
            | is_over * _OVER
            | lease.is_deleted * _DELETED
            | (not lease.has_place) * _LEFT_GROUP
        )
        return cls(
            mark,
            lease.expires_at,
            float(terms.visibility_timeout),
            terms.threshold,
            flags,
            lease.hidden_until,
        )

    def pack(self, key: bytes) -> bytes:
        """Return the packed record for that key."""
        fields = _FIELDS.pack(
            self.mark,
            self.flags,
            key,
            self.expires_at,
            self.visibility_timeout,
            self.threshold,
            self.hidden_until,
        )
        return _CHECKSUM.pack(zlib.crc32(fields)) + fields

    @classmethod
    def unpack(cls, written: bytes) -> Record | None:
        """Return the record; None if it was read while it was being written.

        A checksum detects that. A sequence counter before and after would not, because Python
        cannot control the order in which another CPU sees writes (ARM guarantees none).
        """
        fields = written[_CHECKSUM.size :]
        if zlib.crc32(fields) != _CHECKSUM.unpack_from(written)[0]:
            return None
        mark, flags, _, expires_at, timeout, threshold, hidden_until = _FIELDS.unpack(fields)
        return cls(_MARK_OF_CODE[mark], expires_at, timeout, threshold, flags, hidden_until)


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
        at = _HEADER_BYTES + self.row(key) * RECORD_BYTES
        for _ in range(TRIES):
            row = self._memory[at : at + _ROW_BYTES]
            found = row.find(key)
            if found < 0:
                return None
            start = found - KEY_AT
            if record := Record.unpack(row[start : start + RECORD_BYTES]):
                return record
            time.sleep(PAUSE)
        # Its writer was killed, or stopped, in the middle of it.
        return _UNKNOWN

    def read(self, key: bytes) -> Record:
        """Return what is known of a claim.

        If it has no record, it was released, and another claim has its place by now. But if there
        are leases without a place, it may be one of those.
        """
        record = self.find(key)
        if record is None and self.is_short:
            return _UNKNOWN
        # Look again: it may have been without a place until a moment ago.
        return record or self.find(key) or _GIVEN_BACK


@functools.lru_cache(_KEYS_AT_HAND)
def key_of(receipt_handle: str) -> bytes:
    """Return the key of the claim that began with that receipt handle.

    A redelivery to the same worker continues the claim. If a claim ended and a later one began
    on the same message, they have different handles, and so never share a record.
    """
    handle = receipt_handle.encode(errors="surrogatepass")
    return hashlib.blake2b(handle, digest_size=KEY_BYTES).digest()


def _mark_of(lease: Lease, is_over: bool) -> Mark:
    if lease.goal is Goal.DELETE:
        return Mark.ACKED
    if lease.goal is Goal.RELEASE or is_over:
        return Mark.GIVEN_BACK
    if not lease.terms.extend:
        return Mark.OPTED_OUT
    return _MARKS[lease.status]


class LeaseBoard:
    """Writes every lease to a table, including how it ended. See `leases.register.Board`.

    One process writes, under its keeper's lock. A lease gets its place when it is first shown, and
    keeps it: that of an earlier keeper, if it has one. While there are leases without a place, the
    table says so. Then none of them counts as lost.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # By key: None for a lease that found no place.
        self._places: dict[bytes, int | None] = {}
        # By place: the number of the removal that freed it, infinity while it is taken.
        self._freed = [0.0] * table.places
        self._removals = 0
        self._without = 0

    def show(self, lease: Lease) -> None:
        """Write down a lease that is new or has changed."""
        key = key_of(lease.handles[0])
        place = self._places[key] if key in self._places else self._take(key)
        if place is not None:
            self._table.write(place, key, Record.of(lease))

    def remove(self, lease: Lease) -> None:
        """Write down how a lease has ended. That stays readable until another takes its place."""
        key = key_of(lease.handles[0])
        if key not in self._places:
            # It ended before it was shown.
            return
        place = self._places.pop(key)
        if place is None:
            self._without -= 1
            self._table.is_short = self._without > 0
        else:
            self._removals += 1
            self._freed[place] = self._removals
            self._table.write(place, key, Record.of(lease, is_over=True))

    def note_all_shown(self) -> None:
        """Note that every lease of an earlier keeper was shown by now."""
        self._table.is_short = self._without > 0

    def _take(self, key: bytes) -> int | None:
        place = self._places[key] = self._find(key)
        if place is None:
            self._without += 1
            self._table.is_short = True
        else:
            self._freed[place] = math.inf
        return place

    def _find(self, key: bytes) -> int | None:
        """Return the place that has been free longest, so ends stay readable for long.

        If the key has a record, return its place: a key has at most one record.
        """
        place = self._table.place_of(key)
        if place is None:
            row = self._table.row(key)
            freed = self._freed[row : row + REACH]
            place = row + freed.index(min(freed))
        return None if self._freed[place] == math.inf else place

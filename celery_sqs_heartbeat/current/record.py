"""The record of one lease in a table of leases, and its binary form."""

from __future__ import annotations

import enum
import functools
import hashlib
import struct
import zlib
from typing import NamedTuple

from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus

KEY_BYTES = 16
_CHECKSUM = struct.Struct("<I")
_FIELDS = struct.Struct(f"<BB2x{KEY_BYTES}sdddI4xd")
#: Size of a packed record: a power of two, so no record crosses a line of the CPU's cache.
RECORD_BYTES = _CHECKSUM.size + _FIELDS.size
#: Offset of the key in a packed record.
KEY_AT = _CHECKSUM.size + 4
#: Size of the cache of keys in a process: about one for each task that runs at one time.
_KEYS_AT_HAND = 1_024


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


#: As numbers: to combine flags would take longer than all the rest of a record.
_CERTAIN, _EXTENDED, _RELEASING, _OVER, _DELETED = (int(flag) for flag in Flag)


class Record(NamedTuple):
    """One lease as of its last change. Times are seconds of `clock.now`.

    Attributes:
        visibility_timeout: The timeout that each extension requests, in seconds.
        threshold: An extension is made when less than this is left, in seconds.
        flags: A sum of `Flag`s.
        receives: How many receives it includes, as its owner counts them.
        hidden_until: The latest time until which SQS hides it: no extension may end earlier.
    """

    mark: Mark
    expires_at: float = 0.0
    visibility_timeout: float = 0.0
    threshold: float = 0.0
    flags: int = 0
    receives: int = 0
    hidden_until: float = 0.0

    @classmethod
    def of(cls, lease: Lease, *, is_over: bool = False, receives: int = 0) -> Record:
        """Return the record of a lease; `is_over` once the book has forgotten it."""
        terms = lease.terms
        mark = _mark_of(lease, is_over)
        flags = (
            lease.is_exclusive * _CERTAIN
            | (lease.extensions > 0) * _EXTENDED
            | (lease.pending is Action.RELEASE) * _RELEASING
            | is_over * _OVER
            | lease.is_deleted * _DELETED
        )
        return cls(
            mark,
            lease.expires_at,
            float(terms.visibility_timeout),
            terms.threshold,
            flags,
            receives,
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
            self.receives,
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
        mark, flags, _, expires_at, timeout, threshold, receives, hidden_until = _FIELDS.unpack(
            fields
        )
        return cls(
            _MARK_OF_CODE[mark], expires_at, timeout, threshold, flags, receives, hidden_until
        )


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

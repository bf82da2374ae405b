"""What tasks ask for their own messages: the release delay after any later error.

A task says it in its own process, which may be killed right after. So it is written to memory
that the worker shares, beside the record of the task's lease.
"""

from __future__ import annotations

import contextlib
import math
import struct
import zlib

from celery_sqs_heartbeat.current.record import KEY_BYTES, key_of
from celery_sqs_heartbeat.current.sharing import shared_table
from celery_sqs_heartbeat.current.table import SLOT_BYTES, Table
from celery_sqs_heartbeat.errors import NoLease

_CHECKSUM = struct.Struct("<I4x")
_FIELDS = struct.Struct(f"<{KEY_BYTES}sd")
assert _CHECKSUM.size + _FIELDS.size == SLOT_BYTES


def write_delay(table: Table, receipt_handle: str, delay: float | None) -> None:
    """Write down the delay that a task asks for, in seconds; None for none.

    Nothing is written for a lease that has no place: its message is not ours any more.
    """
    key = key_of(receipt_handle)
    place = table.place_of(key)
    if place is not None:
        fields = _FIELDS.pack(key, math.nan if delay is None else delay)
        table.write_slot(place, _CHECKSUM.pack(zlib.crc32(fields)) + fields)


def read_delay(table: Table, receipt_handle: str) -> float | None:
    """Return the delay that a message's task has asked for, in seconds; None for none."""
    key = key_of(receipt_handle)
    place = table.place_of(key)
    if place is None:
        return None
    written = table.slot(place)
    fields = written[_CHECKSUM.size :]
    # What a killed task was still writing counts for nothing.
    if zlib.crc32(fields) != _CHECKSUM.unpack_from(written)[0]:
        return None
    of, delay = _FIELDS.unpack(fields)
    return None if of != key or math.isnan(delay) else float(delay)


def asked_delay(receipt_handle: str) -> float | None:
    """Return the delay that a task of this process's worker asked for, in seconds, or None."""
    with contextlib.suppress(NoLease):
        return read_delay(shared_table(), receipt_handle)
    return None

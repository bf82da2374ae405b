"""A task's requests for its own message: the release delay after any later error, and a retry.

A task makes the request in its own process, which may be killed right after. So the request is
written to memory that the worker shares, beside the record of the task's lease.
"""

from __future__ import annotations

import contextlib
import math
import struct
import time
import zlib
from typing import NamedTuple

from celery_sqs_heartbeat.current.sharing import shared_table
from celery_sqs_heartbeat.current.table import KEY_BYTES, SLOT_BYTES, Table, key_of
from celery_sqs_heartbeat.errors import NoLease

_CHECKSUM = struct.Struct("<I4x")
_FIELDS = struct.Struct(f"<{KEY_BYTES}sdd")
assert _CHECKSUM.size + _FIELDS.size == SLOT_BYTES


class _Asked(NamedTuple):
    """The requests of a task.

    Attributes:
        delay: Of a release after an error, in seconds; NaN for none.
        retry_at: When to retry the task, in seconds of `time.time`; NaN for never.
    """

    delay: float = math.nan
    retry_at: float = math.nan


def write_delay(table: Table, receipt_handle: str, delay: float | None) -> None:
    """Write down the delay that a task requests, in seconds; None for none.

    Nothing is written for a lease that has no place: its message is no longer ours.
    """
    asked = _read(table, receipt_handle)
    _write(table, receipt_handle, asked._replace(delay=math.nan if delay is None else delay))


def read_delay(table: Table, receipt_handle: str) -> float | None:
    """Return the delay that a message's task has requested, in seconds; None for none."""
    delay = _read(table, receipt_handle).delay
    return None if math.isnan(delay) else delay


def asked_delay(receipt_handle: str) -> float | None:
    """Return the delay that a task of this process's worker requested, in seconds, or None."""
    with contextlib.suppress(NoLease):
        return read_delay(shared_table(), receipt_handle)
    return None


def ask_for_retry(receipt_handle: str, seconds: float) -> bool:
    """Write down that a task must be retried in `seconds`, however it ends.

    False if the lease has no place: its message is no longer ours, or the table is full.
    """
    with contextlib.suppress(NoLease):
        table = shared_table()
        asked = _read(table, receipt_handle)
        return _write(table, receipt_handle, asked._replace(retry_at=time.time() + seconds))
    return False


def asked_retry(receipt_handle: str) -> float | None:
    """Return in how many seconds to retry a task, at least 0; None for no retry."""
    with contextlib.suppress(NoLease):
        at = _read(shared_table(), receipt_handle).retry_at
        return None if math.isnan(at) else max(0.0, at - time.time())
    return None


def _write(table: Table, receipt_handle: str, asked: _Asked) -> bool:
    key = key_of(receipt_handle)
    place = table.place_of(key)
    if place is None:
        return False
    fields = _FIELDS.pack(key, *asked)
    table.write_slot(place, _CHECKSUM.pack(zlib.crc32(fields)) + fields)
    return True


def _read(table: Table, receipt_handle: str) -> _Asked:
    key = key_of(receipt_handle)
    place = table.place_of(key)
    if place is None:
        return _Asked()
    written = table.slot(place)
    fields = written[_CHECKSUM.size :]
    # A task was killed while it wrote this: ignore it.
    if zlib.crc32(fields) != _CHECKSUM.unpack_from(written)[0]:
        return _Asked()
    of, *asked = _FIELDS.unpack(fields)
    return _Asked(*asked) if of == key else _Asked()

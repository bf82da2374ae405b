"""The message of the running task, and the delays that the task requests for it.

A task raises `ReleaseMessage` to have its message released now. It may also request the delay of a
release after any later error, and a retry. It makes such a request in its own process, which may be
killed right after. So the request is written to memory that the worker shares, beside the record of
the task's lease.
"""

from __future__ import annotations

import contextlib
import math
import struct
import time
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from celery import _state
from celery.exceptions import Ignore, Reject

from celery_sqs_heartbeat.common.values import is_number
from celery_sqs_heartbeat.current.sharing import shared_table
from celery_sqs_heartbeat.current.table import KEY_BYTES, SLOT_BYTES, Table, key_of
from celery_sqs_heartbeat.errors import NoLease

_CHECKSUM = struct.Struct("<I4x")
_FIELDS = struct.Struct(f"<{KEY_BYTES}sdd")
assert _CHECKSUM.size + _FIELDS.size == SLOT_BYTES


def current_message() -> Mapping[str, Any]:
    """Return the SQS message of the task that this thread or greenlet runs for a worker.

    Tasks that it calls, directly or eagerly, have no message: they run under their caller's.

    Raises:
        NoLease: There is no message, or it is deleted before its task begins.
    """
    for task in reversed(_state._task_stack.stack):
        for request in reversed(task.request_stack.stack):
            if not (request.called_directly or request.is_eager):
                return _message(task, request)
    raise NoLease("no worker runs a task here")


class ReleaseMessage(Reject, Ignore):
    """Raise it in a task to have SQS deliver the message again after a delay. It is no failure.

    It is Celery's `Reject` with `requeue=True`, so a worker without `--heartbeat-sqs` does not
    delete the message. It is also an `Ignore`, because `autoretry_for` retries after a `Reject`
    but lets an `Ignore` pass. Every version of Celery looks for a `Reject` first.

    If the task has `acks_late=False`, its message was deleted already.

    Args:
        delay: Seconds, cut to what SQS accepts. If it is None, `current_lease.release_delay`
            and the setting `sqs_heartbeat_release_delay` decide.
        reason: For the log.

    Attributes:
        delay: As passed.

    Raises:
        TypeError: The delay is not a number.
        ValueError: It is negative or not finite.
    """

    def __init__(self, delay: float | None = None, reason: str | None = None) -> None:
        if delay is not None:
            check_seconds("delay", delay)
        super().__init__(reason, requeue=True)
        self.delay = delay
        # Unpickling passes these when it leaves a pool process.
        self.args = (delay, reason)

    def __repr__(self) -> str:
        return f"ReleaseMessage(delay={self.delay!r}, reason={self.reason!r})"

    def __str__(self) -> str:
        until = "" if self.delay is None else f" for {self.delay:g} s"
        return f"message released{until}" + (f": {self.reason}" if self.reason else "")


def check_seconds(name: str, value: Any) -> None:
    """Check a number of seconds.

    Args:
        name: The name of the argument or attribute.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or not finite.
    """
    if not is_number(value):
        raise TypeError(f"{name} is {value!r}: give it as seconds")
    if value < 0 or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}: give it as seconds, 0 or more")


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


def _message(task: Any, request: Any) -> Mapping[str, Any]:
    try:
        message: Mapping[str, Any] = request.properties["delivery_info"]["sqs_message"]
    except (KeyError, TypeError):
        raise NoLease("the task's message did not come from SQS") from None
    if not task.acks_late:
        raise NoLease(
            f"task {task.name} has acks_late=False: its message is deleted when it begins"
        )
    return message


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

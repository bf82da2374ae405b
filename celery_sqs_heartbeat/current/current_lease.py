"""`current_lease`: a task checks it before a side effect that must not happen twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.common.clock import now
from celery_sqs_heartbeat.current.current_message import (
    check_seconds,
    current_message,
    read_delay,
    write_delay,
)
from celery_sqs_heartbeat.current.sharing import shared_table
from celery_sqs_heartbeat.current.table import Mark, Record, key_of
from celery_sqs_heartbeat.errors import LeaseLost, NoLease
from celery_sqs_heartbeat.leases.message import group_of, receive_count_of, sequence_number_of

_NO_LEASE = {
    Mark.ACKED: "its message was acknowledged already",
    Mark.OPTED_OUT: "the task opted out of it by sqs_heartbeat=False",
    Mark.UNKNOWN: "the worker holds more messages than its table of leases has room for",
}
_NOT_OURS = {
    Mark.LOST: "SQS says that it is no longer ours, or it was too late to extend it",
    Mark.GIVEN_BACK: "the worker has released or dropped it",
}
_NOT_EXTENDED = {
    Mark.CAPPED: "it has reached max_lease or SQS's 12 hours, and is no longer extended",
    Mark.REFUSED: "the queue refuses extensions: sqs:ChangeMessageVisibility is missing",
}


class CurrentLease:
    """The lease on the message of the task that runs in this thread or greenlet.

    True if there is a lease, even a lost one. Without a lease, every other use raises `NoLease`:
    outside a task that a worker runs, in a worker without
    `--heartbeat-sqs`, on another broker, in a task with `sqs_heartbeat=False` or
    `acks_late=False`. Works in every pool, makes no call to SQS and takes microseconds.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        try:
            _read()
        except NoLease:
            return False
        return True

    @property
    def message_id(self) -> str:
        """The SQS message id: the same over all redeliveries.

        Raises:
            NoLease: There is no lease.
        """
        return str(_read()[0]["MessageId"])

    @property
    def receive_count(self) -> int:
        """How often SQS had delivered the message when this task started; 1 the first time.

        Raises:
            NoLease: There is no lease.
        """
        return receive_count_of(_read()[0])

    @property
    def group(self) -> str | None:
        """The message's group (SQS's `MessageGroupId`); None without one.

        Raises:
            NoLease: There is no lease.
        """
        return group_of(_read()[0])

    @property
    def sequence_number(self) -> str | None:
        """The digits that SQS gives a message of a FIFO queue; None elsewhere.

        They grow within a group. Compare them as numbers: `int(...)`.

        Raises:
            NoLease: There is no lease.
        """
        return sequence_number_of(_read()[0])

    def remaining(self) -> float:
        """Return the seconds for which SQS is known to hide the message; 0.0 when lost.

        Each extension increases it again.

        Raises:
            NoLease: There is no lease.
        """
        return _left(_read()[1])

    def ensure_valid(self, min_remaining: float = 5) -> None:
        """Return if the lease is ours for at least that long. Call it before a side effect.

        Args:
            min_remaining: Seconds. Before an extension, a healthy lease has the threshold left (a
                third of the visibility timeout unless set), or a little less. Require
                less than that.

        Raises:
            LeaseLost: It is lost, expired, or has less left. The call does not wait.
            NoLease: There is no lease.
            TypeError: `min_remaining` is not a number.
            ValueError: It is negative or not finite.
        """
        check_seconds("min_remaining", min_remaining)
        message, record = _read()
        left = _left(record)
        if left < min_remaining or left <= 0:
            message_id = str(message["MessageId"])
            reason = _why(record, left, min_remaining)
            raise LeaseLost(f"message {message_id}: {reason}", message_id, left)

    @property
    def release_delay(self) -> float | None:
        """Seconds after which the message becomes visible again if the task fails from now on.

        None if the task has set none. The setting `sqs_heartbeat_release_delay` then decides.
        The delay applies however the task fails, even if its process is killed. It is cut to
        what SQS accepts. On the last receive before the dead-letter queue it has no effect.

        Raises:
            NoLease: There is no lease.
            TypeError: The value is neither a number nor None.
            ValueError: It is negative or not finite.
        """
        message, _ = _read()
        return read_delay(shared_table(), message["ReceiptHandle"])

    @release_delay.setter
    def release_delay(self, value: float | None) -> None:
        if value is not None:
            check_seconds("release_delay", value)
        message, _ = _read()
        write_delay(shared_table(), message["ReceiptHandle"], value)

    def __repr__(self) -> str:
        try:
            return f"<current_lease: message {self.message_id}, {self.remaining():.3g} s left>"
        except NoLease as error:
            return f"<current_lease: {error}>"


#: The lease of whatever task runs here.
current_lease = CurrentLease()


def _read() -> tuple[Mapping[str, Any], Record]:
    message = current_message()
    record = shared_table().read(key_of(message["ReceiptHandle"]))
    if record.mark in _NO_LEASE:
        raise NoLease(_NO_LEASE[record.mark])
    return message, record


def _left(record: Record) -> float:
    return 0.0 if record.mark in _NOT_OURS else max(0.0, record.expires_at - now())


def _why(record: Record, left: float, min_remaining: float) -> str:
    if record.mark in _NOT_OURS:
        return f"its lease is lost: {_NOT_OURS[record.mark]}"
    state = f"{left:.3g} s of its lease are left" if left else "its lease has expired"
    reason = f"{state}, {min_remaining:g} s are required"
    if record.mark in _NOT_EXTENDED:
        return f"{reason}; {_NOT_EXTENDED[record.mark]}"
    if left and min_remaining > record.threshold:
        return (
            f"{reason}; with a visibility timeout of {record.visibility_timeout:g} s, as little "
            f"as {record.threshold:.3g} s may be left before an extension: require less than "
            "that, or give the queue a longer visibility timeout"
        )
    return f"{reason}; no extension of it was confirmed in time"

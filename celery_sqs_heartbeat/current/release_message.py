"""`ReleaseMessage`: what a task raises to have its message come back later."""

from __future__ import annotations

from celery.exceptions import Ignore, Reject

from celery_sqs_heartbeat.current.given_seconds import check_seconds


class ReleaseMessage(Reject, Ignore):
    """Raise it in a task to have SQS deliver the message again after a delay: no failure.

    For a worker it is Celery's `Reject` with `requeue=True`, so that one without
    `--heartbeat-sqs` does not delete the message. `autoretry_for` retries after a `Reject`,
    but lets an `Ignore` pass: it is both, and every Celery looks for a `Reject` first.

    The message was deleted already where the task has `acks_late=False`.

    Args:
        delay: Seconds, cut to what SQS accepts. None leaves it to `current_lease.release_delay`
            and the setting `sqs_heartbeat_release_delay`.
        reason: For the log.

    Attributes:
        delay: As given.

    Raises:
        TypeError: The delay is not a number.
        ValueError: It is negative or not finite.
    """

    def __init__(self, delay: float | None = None, reason: str | None = None) -> None:
        if delay is not None:
            check_seconds("delay", delay)
        super().__init__(reason, requeue=True)
        self.delay = delay
        # What it is made of again when it comes out of a pool's process.
        self.args = (delay, reason)

    def __repr__(self) -> str:
        return f"ReleaseMessage(delay={self.delay!r}, reason={self.reason!r})"

    def __str__(self) -> str:
        until = "" if self.delay is None else f" for {self.delay:g} s"
        return f"message released{until}" + (f": {self.reason}" if self.reason else "")

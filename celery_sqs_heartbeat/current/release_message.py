"""`ReleaseMessage`: a task raises it to receive its message again later."""

from __future__ import annotations

from celery.exceptions import Ignore, Reject

from celery_sqs_heartbeat.current.given_seconds import check_seconds


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

"""Describes a task's failure. It determines the delay of the message's release."""

from __future__ import annotations

from dataclasses import dataclass

from celery_sqs_heartbeat.leases.events import UNDELIVERABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """How a task failed, or that it requested the release of its message.

    Attributes:
        exception: The type of the error it raised; None if not known.
        is_wanted: Whether it raised `ReleaseMessage`, which is not a failure.
        is_retry: Whether it must be retried (see `worker.retrying`), which is not a failure either.
        is_undeliverable: Whether the task could not start, most likely because of its message.
        delay: The delay that it requested with that, in seconds; None if it requested none.
        reason: Its reason, for the log; empty if it gave none.
    """

    exception: type[BaseException] | None = None
    is_wanted: bool = False
    is_retry: bool = False
    is_undeliverable: bool = False
    delay: float | None = None
    reason: str = ""

    @property
    def cause(self) -> str:
        """Why the message is released, in one to three words."""
        if self.is_retry:
            return "retried"
        if self.is_undeliverable:
            return UNDELIVERABLE
        return "asked by task" if self.is_wanted else "failed"


#: A failure about which nothing is known.
UNKNOWN = TaskFailure()

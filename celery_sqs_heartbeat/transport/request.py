"""The interface of a Celery request that the transport and the step use."""

from __future__ import annotations

from typing import Any, Protocol


class LeasedRequestProtocol(Protocol):
    """A request whose message has a lease."""

    def has_started(self) -> bool:
        """Return whether the pool has reported that it runs the task."""

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will, although its consumer is closed."""

    def has_job(self) -> bool:
        """Return whether the pool has a job for the task."""

    def is_due_for_the_last_time(self) -> bool:
        """Return whether its message was received for the last time, and its task may start."""

    def is_fifo(self) -> bool:
        """Return whether its message is of a FIFO queue."""

    def withdraw(self) -> bool:
        """Prevent the task from starting. Return whether that was in time."""

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""

    def on_lost(self) -> str:
        """Return what to do with its task when the lease is lost."""

    def stop_lost_task(self, pool: Any) -> None:
        """Stop its task if it runs and the message is still not ours."""

    def give_up(self, error: Exception) -> object:
        """Release its message because the task can't be started, unless it may have started."""

    def release(self, cause: str) -> None:
        """Release the message."""

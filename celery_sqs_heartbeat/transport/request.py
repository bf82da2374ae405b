"""What the transport and the step need of a Celery request."""

from __future__ import annotations

from typing import Any, Protocol


class LeasedRequestProtocol(Protocol):
    """A request whose message has a lease.

    Attributes:
        failed_before_pool: Celery failed on it, and had not asked the pool to run it yet.
    """

    failed_before_pool: bool

    def has_started(self) -> bool:
        """Return whether the pool has said that it runs the task."""

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will, though its consumer is closed."""

    def withdraw(self) -> bool:
        """Keep the task from starting; return whether that was in time."""

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""

    def on_lost(self) -> str:
        """Return what becomes of its task when the lease is lost."""

    def stop_lost_task(self, pool: Any) -> None:
        """Stop its task, if it runs and the message is still not ours."""

    def release(self, cause: str) -> None:
        """Release the message."""

"""The exceptions that users may see."""

from __future__ import annotations

from collections.abc import Sequence


class SqsHeartbeatError(Exception):
    """Base class of all exceptions that this package raises."""


class ConfigurationError(SqsHeartbeatError):
    """Settings are wrong. The message lists every fault with its setting, value and way out."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        count = "1 setting is" if len(faults) == 1 else f"{len(faults)} settings are"
        lines = "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"sqs-heartbeat: {count} wrong:{lines}")


class UnusableQueues(SqsHeartbeatError):
    """SQS or kombu refused a queue when a worker started, so the worker can't consume from it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"sqs-heartbeat: {what}: {reason}; "
            "`celery -A proj sqs-heartbeat doctor` checks queues, permissions and settings"
        )


class IncompatibleVersions(SqsHeartbeatError):
    """Celery or another package lacks names that the heartbeat needs. The message lists them."""

    def __init__(self, faults: Sequence[str], versions: str, tested: str) -> None:
        lines = "".join(f"\n  - {each}" for each in faults)
        super().__init__(
            f"sqs-heartbeat: the installed versions do not work together:{lines}\n"
            f"Installed: {versions}. Messages would be received without leases. Install Celery and "
            f"kombu {tested}, or a newer celery-sqs-heartbeat. Or start the worker with "
            "--no-heartbeat-sqs, on queues whose visibility timeout is longer than their longest "
            "task"
        )


class AlreadyHeld(SqsHeartbeatError):
    """The message must not be processed: this process already runs it, or has run it.

    Or the message was delayed so long that another consumer may have received it. In each case
    the receiver does not need to do anything with it.
    """


class NoLease(SqsHeartbeatError):
    """There is no current lease. `if current_lease:` checks whether there is one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    def __str__(self) -> str:
        return f"there is no lease here: {self.args[0]} (check with `if current_lease:`)"


class LeaseLost(SqsHeartbeatError):
    """The task's lease is lost, has expired or ends too soon: another run may have started.

    Attributes:
        message_id: The SQS message id.
        remaining: The seconds that were left; 0.0 if the lease was lost or had expired.
    """

    def __init__(self, message: str, message_id: str, remaining: float) -> None:
        # All arguments, so that the exception survives pickling by a pool's process.
        super().__init__(message, message_id, remaining)
        self.message_id = message_id
        self.remaining = remaining

    def __str__(self) -> str:
        return str(self.args[0])

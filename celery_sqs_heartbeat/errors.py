"""The exceptions that users may meet."""

from __future__ import annotations

from collections.abc import Sequence


class SqsHeartbeatError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigurationError(SqsHeartbeatError):
    """Settings are wrong. Lists every fault, each with its setting, value and way out."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        count = "1 setting is" if len(faults) == 1 else f"{len(faults)} settings are"
        lines = "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"sqs-heartbeat: {count} wrong:{lines}")


class UnusableQueues(SqsHeartbeatError):
    """SQS or kombu refused a queue as a worker started: there is nothing to consume from."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"sqs-heartbeat: {what}: {reason}; "
            "`celery -A proj sqs-heartbeat doctor` checks queues, permissions and settings"
        )


class IncompatibleVersions(SqsHeartbeatError):
    """Another package lacks what the heartbeat needs of it. Lists every name that is missing."""

    def __init__(self, missing: Sequence[str], versions: str, tested: str) -> None:
        self.missing = tuple(missing)
        names = "1 name" if len(missing) == 1 else f"{len(missing)} names"
        lines = "".join(f"\n  - {each}" for each in missing)
        super().__init__(
            f"sqs-heartbeat: {names} that the heartbeat needs can't be used with {versions}:"
            f"{lines}\n"
            f"Messages would be received without leases. Install Celery and kombu {tested}, or a "
            "newer celery-sqs-heartbeat; or start the worker with --no-heartbeat-sqs, on queues "
            "whose visibility timeout is longer than their longest task"
        )


class AlreadyHeld(SqsHeartbeatError):
    """The message must not be processed: it is being processed here, or has been.

    Or it was held up on its way for so long that it may be someone else's. The message
    needs nothing more of its receiver.
    """


class NoLease(SqsHeartbeatError):
    """There is no lease to ask about. `if current_lease:` asks whether there is one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    def __str__(self) -> str:
        return f"there is no lease here: {self.args[0]} (`if current_lease:` asks)"


class LeaseLost(SqsHeartbeatError):
    """The task's message is not ours, or not for long enough: another run may be under way.

    Attributes:
        message_id: The SQS message id.
        remaining: Seconds that were left; 0.0 when it was lost or had expired.
    """

    def __init__(self, message: str, message_id: str, remaining: float) -> None:
        # All of them, so that it comes out of a pool's process as it was raised.
        super().__init__(message, message_id, remaining)
        self.message_id = message_id
        self.remaining = remaining

    def __str__(self) -> str:
        return str(self.args[0])

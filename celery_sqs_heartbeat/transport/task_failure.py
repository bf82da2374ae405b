"""What a request knows of its task's failure, for the delay of its message's release."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """How a task failed, or that it asked for its message to be released.

    Attributes:
        exception: What it raised; None where that is not known.
        is_wanted: Whether it raised `ReleaseMessage`, which is no failure.
        is_retry: Whether it is to be retried, see `worker.retrying`, which is none either.
        delay: The delay that it gave with that, in seconds; None where it gave none.
        reason: Why, for the log; empty where it did not say.
    """

    exception: type[BaseException] | None = None
    is_wanted: bool = False
    is_retry: bool = False
    delay: float | None = None
    reason: str = ""

    @property
    def cause(self) -> str:
        """Why the message is released, in a word or two."""
        if self.is_retry:
            return "retried"
        return "asked by task" if self.is_wanted else "failed"


#: A failure of which nothing is known.
UNKNOWN = TaskFailure()

"""The facts that a release policy may use: the failed task, its message and its queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """The known attributes of the queue that a message came from.

    Attributes:
        name: The name that Celery uses.
        visibility_timeout: The one of the message's lease, in seconds.
        max_receive_count: From its redrive policy; None without one, or if it is not known.
        is_known: Whether the queue's attributes are known. If not, `max_receive_count` is None.
    """

    name: str
    url: str
    visibility_timeout: int
    max_receive_count: int | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed task whose message stays in the queue.

    Attributes:
        receive_count: How often SQS had delivered the message, at least 1.
        exception: The type that the task raised; None if it is not known.
        message_age: Seconds since the message was sent; None if SQS did not return it.
    """

    queue: QueueInfo
    receive_count: int
    exception: type[BaseException] | None = None
    message_age: float | None = None

    @property
    def is_last_receive(self) -> bool:
        """Whether SQS moves the message to the dead-letter queue instead of delivering it again."""
        most = self.queue.max_receive_count
        return most is not None and self.receive_count >= most

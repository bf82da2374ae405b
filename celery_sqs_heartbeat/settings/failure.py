"""What a release policy may go by: a task that failed, its message and its queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """What is known of the queue that a message came from.

    Attributes:
        name: As Celery knows it.
        visibility_timeout: That of the message's lease, in seconds.
        max_receive_count: Of its redrive policy; None without one, or where it is not known.
        is_known: Whether the queue's attributes are known. `max_receive_count` is None if not.
    """

    name: str
    url: str
    visibility_timeout: int
    max_receive_count: int | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that failed while its message is to stay in the queue.

    Attributes:
        receive_count: How often SQS had delivered the message, at least 1.
        exception: What the task raised; None where that is not known.
        message_age: Seconds since the message was sent; None where SQS did not say.
    """

    queue: QueueInfo
    receive_count: int
    exception: type[BaseException] | None = None
    message_age: float | None = None

    @property
    def is_last_receive(self) -> bool:
        """Whether SQS moves the message to the dead-letter queue instead of its next receive."""
        most = self.queue.max_receive_count
        return most is not None and self.receive_count >= most

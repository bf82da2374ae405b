"""One message that a worker holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.leases.events import HANDED_ON
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import is_fifo


@dataclass(eq=False, slots=True, kw_only=True)
class HeldMessage:
    """A message that the worker holds, or whose end its keeper has not confirmed.

    Attributes:
        number: Identifies it on the link.
        receives: How many receives of it the keeper knows of.
        place: Its place in the table; None if it has no place.
        pid: The process that runs its task; None before the task starts.
        is_certain: As far as the worker knows, no one else can have received it; see `Lease`.
        message: The message as SQS returned it, if a release before its task starts would make it a
            dead letter; see `is_sent_again`.
        seen: Its bytes in the table when the lease was last updated from it.
    """

    lease: Lease
    number: int
    receives: int = 1
    place: int | None = None
    pid: int | None = None
    is_certain: bool = True
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    seen: bytes = field(default=b"", repr=False)

    def keep(self, message: Mapping[str, Any]) -> None:
        """Keep a message that was just received, if it may have to be sent again.

        A FIFO queue would put it behind the other messages of its group.
        """
        is_needed = self.lease.is_last_receive and not is_fifo(self.lease.queue_url)
        self.message = message if is_needed and message.get("Body") else None

    @property
    def is_sent_again(self) -> bool:
        """Whether it is sent again instead of being released.

        SQS would move it to the dead-letter queue, although its task never started, and nothing is
        known to be wrong with it.
        """
        is_new = self.message is not None and self.lease.started_at is None
        return is_new and self.lease.cause in HANDED_ON

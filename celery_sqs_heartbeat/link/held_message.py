"""One message that a worker holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import Lease


@dataclass(eq=False, slots=True, kw_only=True)
class HeldMessage:
    """A message that the worker holds, or whose end its keeper has not confirmed.

    Attributes:
        number: Identifies it on the link.
        receives: How many receives of it the keeper knows of.
        place: Its place in the table; None if it has no place.
        pid: The process that runs its task; None before the task starts.
        is_certain: As far as the worker knows, no one else can have received it; see `Lease`.
        seen: Its bytes in the table when the lease was last updated from it.
    """

    lease: Lease
    number: int
    receives: int = 1
    place: int | None = None
    pid: int | None = None
    is_certain: bool = True
    seen: bytes = field(default=b"", repr=False)

"""One message that a worker holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.lease import Lease


@dataclass(eq=False, slots=True, kw_only=True)
class HeldMessage:
    """A message that the worker holds, or whose end its keeper has not confirmed.

    Attributes:
        number: Names it on the link.
        receives: How many receives of it the keeper knows of.
        place: Its place in the table; None without one.
        pid: The process that runs its task; None before its start.
        is_certain: The worker knows of nothing by which it may be someone else's; see `Lease`.
        seen: What was written of it in the table when the lease was brought up to date.
    """

    lease: Lease
    number: int
    receives: int = 1
    place: int | None = None
    pid: int | None = None
    is_certain: bool = True
    seen: bytes = field(default=b"", repr=False)

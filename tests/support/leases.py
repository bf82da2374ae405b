"""Leases like those of a book, and boards for them, for tests of how they are shown."""

from __future__ import annotations

from celery_sqs_heartbeat.current.sharing import share_table
from celery_sqs_heartbeat.current.table import LeaseBoard
from celery_sqs_heartbeat.leases.lease import Lease, LeaseTerms

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)


def lease_of(
    handle: str,
    *,
    queue_url: str = "https://q",
    message_id: str = "m",
    expires_at: float = 1000.0,
    terms: LeaseTerms = TERMS,
) -> Lease:
    """Return a lease that began with that receipt handle."""
    return Lease(
        queue_url=queue_url,
        message_id=message_id,
        terms=terms,
        held_since=0.0,
        receipt_handle=handle,
        receive_count=1,
        expires_at=expires_at,
        hidden_until=expires_at,
        extend_at=expires_at - terms.threshold,
        last_timeout=terms.visibility_timeout,
    )


def share_board(leases: int) -> LeaseBoard:
    """Return a board on a table that this process's children can read."""
    return LeaseBoard(share_table(leases))

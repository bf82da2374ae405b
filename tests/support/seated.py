"""A board on a table that this process's children can read, for tests of what it shows."""

from __future__ import annotations

from celery_sqs_heartbeat.current.sharing import share_table
from celery_sqs_heartbeat.current.table import LeaseBoard


def share_board(leases: int) -> LeaseBoard:
    """Return a board on a table that this process's children can read."""
    return LeaseBoard(share_table(leases))

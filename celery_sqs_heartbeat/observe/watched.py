"""The parts of a keeper that are observed, besides its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.view import LeaseView


class Watched(Protocol):
    """A keeper: a `LeaseKeeper`, or a worker's view of one in another process."""

    @property
    def health(self) -> KeeperHealth:
        """Its health. Never waits, even if the keeper hangs."""

    def snapshot(self) -> Sequence[LeaseView]:
        """Return a view of every lease, all at the same moment."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""

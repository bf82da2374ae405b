"""What is observed of a keeper, besides its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.view import LeaseView


class Watched(Protocol):
    """A keeper: a `LeaseKeeper`, or what a worker knows of one in another process."""

    @property
    def health(self) -> KeeperHealth:
        """How it does. Waits for nothing, also where it hangs."""

    def snapshot(self) -> Sequence[LeaseView]:
        """Return what is to be seen of every lease, all at one moment."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""

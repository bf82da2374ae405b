"""What is observed of a keeper, and by whom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseView

logger = logging.getLogger(__name__)

Observer = Callable[[Event], None]


class Observers:
    """Passes every event to several observers. An error of one does not affect the others."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def __call__(self, event: Event) -> None:
        """Pass on an event of the keeper."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                logger.exception("sqs-heartbeat: an observer failed on %s", event.kind.value)


class Watched(Protocol):
    """A keeper: a `LeaseKeeper`, or a worker's view of one in another process."""

    @property
    def health(self) -> KeeperHealth:
        """Its health. Never waits, even if the keeper hangs."""

    def snapshot(self) -> Sequence[LeaseView]:
        """Return a view of every lease, all at the same moment."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""

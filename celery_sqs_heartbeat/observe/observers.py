"""Several observers of one keeper."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery_sqs_heartbeat.leases.events import Event

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

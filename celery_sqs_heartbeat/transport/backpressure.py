"""Decides whether a worker may receive more messages, in addition to its prefetch limit."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.transport.binding import Heartbeat

logger = logging.getLogger(__name__)

#: The number of unconfirmed deletes and releases at which consuming pauses. Without it, an outage
#: of SQS's deletes would pile up work without limit.
MAX_ENDING = 1_000


class Backpressure:
    """Pauses a channel's consumers while the keeper has too much to do."""

    def __init__(self, *, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._was_backed_up = False

    def is_left(self) -> bool:
        """Return whether the keeper can take another message."""
        keeper = self._heartbeat.keeper
        return not (keeper.is_behind or self._is_backed_up() or self._is_full())

    def promised(self) -> int:
        """Return how many prefetch slots are reserved for messages that wait to be delivered."""
        return self._heartbeat.groups.next_up

    def _is_backed_up(self) -> bool:
        """Return whether too many deletes and releases wait. Log each change."""
        ending = self._heartbeat.keeper.ending
        was_backed_up, self._was_backed_up = self._was_backed_up, ending >= MAX_ENDING
        if self._was_backed_up is not was_backed_up:
            logger.warning(
                "sqs-heartbeat: %d deletes and releases are not confirmed: consuming %s",
                ending,
                "continues" if was_backed_up else "pauses until SQS confirms them",
            )
        return self._was_backed_up

    def _is_full(self) -> bool:
        """Return whether a worker without a prefetch limit holds all it can keep extended."""
        heartbeat = self._heartbeat
        return not heartbeat.leases and len(heartbeat.keeper) >= heartbeat.terms.most_leases()

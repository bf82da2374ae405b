"""The events of a book. They alone must show which leases it holds and how each one ended."""

from __future__ import annotations

from collections.abc import Iterable

from celery_sqs_heartbeat.leases.events import Event, EventKind
from tests.model.truth import Key

#: The events that end a lease for a reader.
ENDS = frozenset(
    {
        EventKind.MESSAGE_DELETED,
        EventKind.MESSAGE_RELEASED,
        EventKind.MESSAGE_LAPSING,
        EventKind.DELETE_ABANDONED,
    }
)


class Reported:
    """The leases according to the events alone."""

    def __init__(self) -> None:
        self._held: dict[Key, str] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Follow the events. Each lease begins once, and ends once, under its own handle."""
        for event in events:
            key = (event.queue_url, event.message_id)
            if event.kind is EventKind.MESSAGE_RECEIVED:
                is_new = event.cause == "new"
                assert not (is_new and key in self._held), "the earlier end was not reported"
                self._held[key] = event.receipt_handle
            elif event.kind in ENDS:
                assert self._held.pop(key, None) == event.receipt_handle, "an end without a lease"

    def drop(self, key: Key) -> None:
        """Note that the owner of a message lets it expire, which is not reported."""
        self._held.pop(key, None)

    def check(self, held: Iterable[Key]) -> None:
        """Check that exactly these leases are held."""
        assert self._held.keys() == set(held)

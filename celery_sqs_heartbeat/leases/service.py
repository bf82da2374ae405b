"""What a service permits that makes messages invisible for a visibility timeout.

All else that differs between services is behind a keeper's two calls: to receive, and to make a
`Call` that the book has planned, which returns an `Outcome` for each of its entries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTraits:
    """The limits of a service. Times are in seconds.

    Attributes:
        most_received: The most messages that one receive returns.
        most_changed: The most entries of one call that extends and releases.
        most_deleted: The most entries of one call that deletes.
        longest_timeout: The longest visibility timeout.
        longest_hold: How long a message stays hidden after its receive at most.
        longest_wait: The longest long poll.
    """

    most_received: int
    most_changed: int
    most_deleted: int
    longest_timeout: int
    longest_hold: int
    longest_wait: int


#: SQS API reference: ReceiveMessage, ChangeMessageVisibilityBatch, DeleteMessageBatch. The longest
#: hold: SQS Developer Guide, "Visibility timeout".
SQS = ServiceTraits(
    most_received=10,
    most_changed=10,
    most_deleted=10,
    longest_timeout=43_200,
    longest_hold=43_200,
    longest_wait=20,
)

"""One receive that is under way."""

from __future__ import annotations

from dataclasses import dataclass

#: The most messages of one receive (SQS API reference, ReceiveMessage).
MAX_RECEIVED = 10
#: Added to what is left of a long poll for its answer to be sent, in seconds.
_POLL_GRACE = 0.5
#: How late an answer may be before its poll is given up, in seconds. SQS answers within
#: milliseconds of the wait's end; the rest is for a slow way to it and back: TCP repeats a lost
#: packet after 0.2, 0.6, 1.4, 3 and 6.2 s.
POLL_MARGIN = 10.0


@dataclass(eq=False, kw_only=True)
class Poll:
    """A receive without an answer so far.

    Attributes:
        url: That of the leases on what it brings.
        sent_at: When it was sent, in seconds of `clock.now`.
        waits: How long it waits for messages, in seconds.
        count: How many messages it asks for.
        timeout: The visibility timeout that it asks for, in seconds; None where it asks for
            none, as that of the queue is not known.
        is_sent: Whether it does not wait for a free connection any more.
        watched: For how long the event loop has run since, in seconds: while it stands in a
            solo pool's task, an answer that has come is not read.
        is_given_up: Whether its queue is polled again without its answer, which is still
            taken if it comes.
        is_aborted: Whether its answer is not waited for any more.
    """

    queue: str
    url: str
    sent_at: float
    waits: int
    count: int = 0
    timeout: int | None = None
    is_sent: bool = False
    watched: float = 0.0
    is_given_up: bool = False
    is_aborted: bool = False

    @property
    def ends_at(self) -> float:
        """When its answer is in at the latest."""
        return self.sent_at + self.waits + _POLL_GRACE

    @property
    def patience(self) -> float:
        """How long its answer is waited for before the queue is polled again, in seconds."""
        return self.waits + _POLL_GRACE + POLL_MARGIN

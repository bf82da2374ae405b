"""A receive that was sent and not yet answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Added to the duration of a long poll, for the sending of its answer, in seconds.
_POLL_GRACE = 0.5
#: How late an answer may be when a worker ends, in seconds. It is read even if the machine or the
#: network stalls for a moment: messages in it would be hidden for a whole visibility timeout. With
#: the longest poll and the shortest flush, the worker ends within Kubernetes' 30 s.
_READ_GRACE = 3.0
#: How late an answer may be before its poll is given up, in seconds. SQS answers within
#: milliseconds after the wait. The rest allows for a slow network: TCP repeats a lost packet after
#: 0.2, 0.6, 1.4, 3 and 6.2 s.
POLL_MARGIN = 10.0


@dataclass(eq=False, kw_only=True)
class Poll:
    """A receive without an answer yet.

    Attributes:
        url: The queue's URL in the leases on its messages.
        sent_at: When it was sent, in seconds of `clock.now`.
        waits: How long it waits for messages, in seconds.
        count: How many messages it requests.
        timeout: The visibility timeout that it requests, in seconds; None if it requests none,
            because the queue's own is not known.
        is_sent: Whether it was sent, and no longer waits for a free connection.
        watched: How long the event loop has run since then, in seconds. While a solo pool's task
            blocks the loop, an answer that has arrived is not read.
        is_given_up: Whether its queue is polled again without its answer. If the answer still
            arrives, it is used.
        is_aborted: Whether the worker no longer waits for its answer at all.
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
        """When its answer should arrive at the latest."""
        return self.sent_at + self.waits + _POLL_GRACE

    @property
    def patience(self) -> float:
        """How long to wait for its answer before the queue is polled again, in seconds."""
        return self.waits + _POLL_GRACE + POLL_MARGIN


def awaited_until(polls: Iterable[Poll], now: float) -> float:
    """Return until when a worker that ends waits for the answers of its polls, in `clock.now`.

    If their time has passed already, it still waits for a moment from now on: they may be answered.
    """
    ends = [poll.ends_at for poll in polls if not poll.is_given_up]
    return max([now, *ends]) + _READ_GRACE

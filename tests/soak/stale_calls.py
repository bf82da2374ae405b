"""Unanswered calls by an older handle: SQS may carry them out at any later time."""

from __future__ import annotations

import math

from tests.soak.delivery import Delivery
from tests.soak.model import Call, Entry

#: After these faults, a worker knows that its call was not carried out.
_NOT_DONE = {"throttled", "503", "refused", "hidden", "entries refused"}
#: After this fault, it knows that the call was carried out before the answer or not at all.
_FAILED_WITHIN = "500"


def may_still_be_done(earlier: Delivery, call: Call, entry: Entry, *, answered_by: float) -> bool:
    """Return whether SQS may still carry out a call for an earlier receive.

    Args:
        answered_by: A later answer does not count.
    """
    is_answered = call.fault == _FAILED_WITHIN or earlier.is_known(call, entry)
    return call.fault not in _NOT_DONE and not (is_answered and call.ended < answered_by)


def longest_hold(delivery: Delivery) -> float:
    """Return how long a lease counts at most, in seconds: no longer than any open extension.

    SQS may carry out that extension after any other call that hides the message
    (docs/internals/leases.md, "When an older handle is still in use").
    """
    return min(
        (
            float(entry.timeout)
            for earlier in delivery.before()
            for call, entry in earlier.extensions
            if earlier.worker == delivery.worker
            and call.started < delivery.receive.ended
            and may_still_be_done(earlier, call, entry, answered_by=delivery.receive.started)
        ),
        default=math.inf,
    )

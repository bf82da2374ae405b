"""Late extensions by the owner of an expired lease, which change the next owner's lease."""

from __future__ import annotations

from tests.soak.delivery import Delivery
from tests.soak.table import DISTURBED, Cause


def why_cut_short(delivery: Delivery) -> Cause | None:
    """Return whether the last call that moved its expiry was an extension by an older handle."""
    for earlier in delivery.before():
        if (
            earlier.worker != delivery.worker
            and _has_moved(earlier, delivery)
            and _may_extend_late(earlier)
        ):
            return Cause(DISTURBED, "the owner of an older lease set a shorter timeout")
    return None


def _has_moved(earlier: Delivery, delivery: Delivery) -> bool:
    return any(
        entry.done
        and call.forwarded > delivery.receive.done
        and call.done + entry.timeout == delivery.visible_at
        for call, entry in earlier.changes
    )


def _may_extend_late(earlier: Delivery) -> bool:
    """Return whether it extended its expired lease within one timeout."""
    late = [call.started for call, _ in earlier.changes if call.started > earlier.visible_at]
    timeouts = [entry.timeout for _, entry in earlier.changes]
    return bool(late) and min(late) < earlier.visible_at + max([earlier.timeout, *timeouts])

"""Whether a worker set a message aside, for a release of it that might still be done."""

from __future__ import annotations

from tests.soak.belief import belief_of
from tests.soak.lives import Life
from tests.soak.table import HELD_UP, Cause
from tests.soak.tenure import Tenure

#: After these a worker knows that its call was not done.
_ANSWERED = {"throttled", "503", "refused", "hidden", "entries refused"}


def why_set_aside(tenure: Tenure, life: Life) -> Cause | None:
    """Return whether it was not run as an older release by its worker was not answered yet.

    Only the first time: one that hangs must not keep a message for good. And not where it came
    back before its lease was over: then that release was done.
    """
    was_read = tenure.run is not None and tenure.run.count == tenure.count
    calls = [*tenure.changes, *tenure.deletes]
    earlier = next((each for each in tenure.before() if each.worker == tenure.worker), None)
    if was_read or earlier is None or any(call.worker == tenure.worker for call, _ in calls):
        return None
    received_at = tenure.receive.ended
    is_open = any(
        call.worker == tenure.worker
        and entry.timeout < tenure.queue.shortest
        and call.started < received_at
        and call.fault not in _ANSWERED
        and not (earlier.is_known(call, entry) and call.ended < received_at)
        for call, entry in earlier.changes
    )
    if not is_open or received_at < belief_of(earlier, life).ends:
        return None
    return Cause(HELD_UP, "an older release of it was held up")

"""Releases that were under way when their keeper died. The next keeper does not repeat them."""

from __future__ import annotations

from tests.soak.blocks import since_when
from tests.soak.delivery import HASTE, Delivery
from tests.soak.model import Call, Records
from tests.soak.releases import GRACE, why_released_by_the_same_keeper
from tests.soak.table import RELEASE_CUT, Cause
from tests.soak.worker_history import WorkerHistory

#: A keeper acts on a reason for a release within so many seconds. Times without a keeper do not
#: count.
_FRESH_SECONDS = GRACE + HASTE
#: A keeper may not have read an answer that came so shortly before its death, in seconds.
_READING_SECONDS = 0.1


def note_unread_answers(records: Records) -> None:
    """Note which answers no keeper read, because it had died or was stopped until its death."""
    deaths = [
        harm
        for harm in records.harms
        if harm.what == "keeper-kill" or (harm.what == "keeper-pause" and harm.died)
    ]
    for call in records.calls:
        if call.operation in ("ChangeMessageVisibility", "DeleteMessage") and any(
            harm.worker == call.worker and _was_under_way(call, harm.at) for harm in deaths
        ):
            call.fault = call.fault or "its keeper died"
            for entry in call.entries:
                entry.told = False


def why_cut(delivery: Delivery, history: WorkerHistory) -> Cause | None:
    """Return whether a release of it may have been under way when its keeper died.

    The worker's log must report the release.
    """
    says_so = delivery.message_id in history.unrepeated
    if says_so and any(
        _was_cut(delivery, history, down.harm.at)
        for down in history.downs
        if down.dies and down.harm.at < delivery.visible_at
    ):
        return Cause(RELEASE_CUT, "its keeper died as it released it")
    return None


def _was_cut(delivery: Delivery, history: WorkerHistory, at: float) -> bool:
    releases = [call for call, _ in delivery.releases if call.started <= at]
    if releases:
        return _was_under_way(releases[-1], at)
    # It may have been planned but not sent.
    fresh_since = since_when(at, _FRESH_SECONDS, history.blocks)
    then, before = (
        why_released_by_the_same_keeper(delivery, history, when)
        for when in (at + HASTE, fresh_since)
    )
    return then is not None and before is None


def _was_under_way(call: Call, at: float) -> bool:
    return call.started <= at <= call.ended + _READING_SECONDS

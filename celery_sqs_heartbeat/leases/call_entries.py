"""Takes the entries of one call from the leases that wait in a lane."""

from __future__ import annotations

from collections.abc import Callable

from celery_sqs_heartbeat.leases.actions import early_entry_for, urgency
from celery_sqs_heartbeat.leases.calls import MAX_BATCH_ENTRIES, Entry
from celery_sqs_heartbeat.leases.lane import Lane
from celery_sqs_heartbeat.leases.lease import Lease

#: A call takes with it the full calls of its queue that are due within so many seconds. Calls that
#: are made at the same time need fewer wake-ups of threads than one call every few milliseconds.
TOGETHER_SECONDS = 0.05
#: Returns the entry for a lease that is due. If the lease needs no call, because it has lapsed or
#: is capped, it updates the lease and returns None. It may change where leases are placed.
DueEntry = Callable[[Lease, float], Entry | None]


def take_due(lane: Lane, now: float, due_entry: DueEntry) -> list[Entry]:
    """Return the entries of a call for the most urgent leases that are due.

    If there are fewer than ten, those that are due next fill it up.
    """
    entries: list[Entry] = []
    most = MAX_BATCH_ENTRIES if lane.probe_at is None else 1
    for lease in lane.pop_ready():
        if lease.is_isolated and entries:
            lane.put_back(lease, urgency(lease))
            break
        entry = due_entry(lease, now)
        if entry is None:
            continue
        entries.append(entry)
        if lease.is_isolated or len(entries) == most:
            return entries
    if entries:
        lane.fill_up(entries, lambda lease: early_entry_for(lease, now))
    return entries


def take_full_batch(lane: Lane, now: float, put: Callable[[Lease], object]) -> list[Entry]:
    """Return the entries of a full call that is due soon; none if there is no such call.

    It contains no second tries, because they pause for SQS's sake.

    Args:
        put: Places a lease again.
    """
    due = lane.first_waiting()
    if due is None or due > now + TOGETHER_SECONDS:
        return []
    entries: list[Entry] = []
    lane.fill_up(entries, lambda each: None if each.attempts else early_entry_for(each, now))
    if len(entries) == MAX_BATCH_ENTRIES:
        return entries
    for entry in entries:
        put(entry.lease)
    return []

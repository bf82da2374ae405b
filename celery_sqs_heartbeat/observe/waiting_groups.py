"""Which leases wait behind another of their message group."""

from __future__ import annotations

from collections.abc import Iterable, Set

from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.view import LeaseView

#: A message: its queue's URL and its id.
Key = tuple[str, str]


def key_of(lease: LeaseView) -> Key:
    """Return the key that identifies a lease."""
    return (lease.queue_url, lease.message_id)


def behind_others(leases: Iterable[LeaseView]) -> Set[Key]:
    """Return the held leases that are not the first of their group.

    Args:
        leases: All of a keeper.
    """
    firsts: dict[tuple[str, str | None], int] = {}
    ordered = [lease for lease in leases if lease.is_in_order]
    for lease in ordered:
        group, place = _group(lease), _place(lease)
        firsts[group] = min(place, firsts.get(group, place))
    return {
        key_of(lease)
        for lease in ordered
        if lease.goal is Goal.HOLD and _place(lease) > firsts[_group(lease)]
    }


def count_groups(leases: Iterable[LeaseView]) -> int:
    """Return the number of ordered message groups that have leases."""
    return len({_group(lease) for lease in leases if lease.is_in_order})


def _group(lease: LeaseView) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _place(lease: LeaseView) -> int:
    return int(lease.sequence_number or 0)

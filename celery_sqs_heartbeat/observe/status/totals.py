"""Counts all leases, because the page lists only some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from celery_sqs_heartbeat.leases.view import LeaseView
from celery_sqs_heartbeat.observe.waiting_groups import Key, count_groups, key_of

_Key = TypeVar("_Key", bound=Hashable)


def totals(leases: Sequence[LeaseView], behind: Set[Key]) -> dict[str, Any]:
    """Return the number of leases and their states. Times are in seconds.

    Each lease is either running, waiting, or pending for its delete or its release. `not_well`
    counts leases that have expired, are lost, or are not extended (any more).

    Args:
        behind: The leases that wait behind another of their message group. May have others, too.
    """
    held = [lease for lease in leases if lease.goal is Goal.HOLD]
    running = sum(lease.running_for is not None for lease in held)
    return {
        "in_flight": len(leases),
        "running": running,
        "waiting": len(held) - running,
        "pending_deletes": sum(lease.goal is Goal.DELETE for lease in leases),
        "pending_releases": sum(lease.goal is Goal.RELEASE for lease in leases),
        "not_well": sum(_is_not_well(lease) for lease in leases),
        "groups": count_groups(leases),
        "behind": sum(key_of(lease) in behind for lease in leases),
        "oldest": rounded(max((lease.held_for for lease in leases), default=None)),
        "least_left": rounded(min((lease.expires_in for lease in leases), default=None)),
    }


def grouped(
    leases: Iterable[LeaseView], key: Callable[[LeaseView], _Key]
) -> Mapping[_Key, Sequence[LeaseView]]:
    """Return the leases by a key, the key with the most leases first."""
    groups: dict[_Key, list[LeaseView]] = defaultdict(list)
    for lease in leases:
        groups[key(lease)].append(lease)
    return dict(sorted(groups.items(), key=lambda group: len(group[1]), reverse=True))


def _is_not_well(lease: LeaseView) -> bool:
    # A late or dead keeper has not noted the expiry yet.
    return lease.status is not LeaseStatus.OWNED or lease.expires_in <= 0


def rounded(seconds: float | None) -> float | None:
    """Return seconds rounded to milliseconds; the page never shows more."""
    return None if seconds is None else round(seconds, 3)

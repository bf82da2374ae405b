"""The data of the status page, as plain values. docs/status-page.md documents the fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from heapq import nsmallest
from itertools import islice
from typing import Any, TypeVar

from celery_sqs_heartbeat.leases.events import Event, KeeperHealth
from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus, LeaseView
from celery_sqs_heartbeat.leases.message import queue_name
from celery_sqs_heartbeat.observe.message_groups import (
    Key,
    StoppedGroup,
    behind_others,
    count_groups,
    key_of,
)
from celery_sqs_heartbeat.observe.observers import Watched
from celery_sqs_heartbeat.observe.polled import Polled, PolledQueue
from celery_sqs_heartbeat.observe.recorder import Recorder

_Key = TypeVar("_Key", bound=Hashable)

STUCK = frozenset({"dead", "late", "stalled"})
#: How many leases are listed: those that expire first. More would not help a reader.
MAX_LEASES = 500
#: How many tasks have their own counts: those with the most leases. Senders choose task names.
MAX_TASKS = 500
#: How many message groups are listed: those that stopped last.
MAX_STOPPED = 100


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


#: What may be wrong with a worker, the worst first; all of it makes it unready. `STUCK` is what a
#: restart ends. It does not end the rest, which may have the same cause in every worker of a fleet.
TROUBLES: Mapping[str, Callable[[KeeperHealth, Sequence[PolledQueue]], bool]] = {
    "dead": lambda health, _: not health.alive,
    "late": lambda health, _: health.late,
    "stalled": lambda health, _: health.stalled,
    "unconnected": lambda health, _: not health.connected,
    "deaf": lambda _, queues: any(queue.is_deaf for queue in queues),
}


def health_payload(keeper: Watched, polled: Polled | None = None) -> dict[str, Any]:
    """Return the health of the keeper and the polls. Never waits, even if threads hang."""
    health = keeper.health
    queues = polled.view() if polled is not None else []
    return {
        "status": next((name for name, is_so in TROUBLES.items() if is_so(health, queues)), "ok"),
        "last_tick_age": rounded(health.last_tick_age),
        "replaced": health.replaced,
        "standstills": health.standstills,
        "hanging": health.hanging,
        "last_loop_age": rounded(health.loop_age),
        "polls": [
            {
                "queue": each.queue,
                "last_answered_age": rounded(each.age),
                "unanswered": each.unanswered,
                "deaf": each.is_deaf,
            }
            for each in queues
        ],
    }


def leases_payload(
    keeper: Watched, recorder: Recorder, name: str, polled: Polled | None = None
) -> dict[str, Any]:
    """Return totals of all leases and of each queue and task, and the leases that expire first.

    Beside each shortened list is the number of entries that it leaves out.
    """
    now, leases = keeper.now(), keeper.snapshot()
    marks, stopped = recorder.extended_at(), recorder.stopped.view(now)
    behind = behind_others(leases)
    shown = nsmallest(MAX_LEASES, leases, key=lambda lease: lease.expires_in)
    queues = grouped(leases, lambda lease: lease.queue_url)
    tasks = grouped(leases, lambda lease: (lease.queue_url, lease.task))
    return {
        "worker": name,
        "health": health_payload(keeper, polled),
        **totals(leases, behind),
        "queues": [{**_queue(url), **totals(held, behind)} for url, held in queues.items()],
        "tasks": [
            {**_queue(url), "task": task, **totals(held, behind)}
            for (url, task), held in islice(tasks.items(), MAX_TASKS)
        ],
        "tasks_left_out": max(0, len(tasks) - MAX_TASKS),
        "leases": [
            {
                **_lease(lease, [now - at for at in marks.get(key_of(lease), ())]),
                "behind": key_of(lease) in behind,
            }
            for lease in shown
        ],
        "leases_left_out": len(leases) - len(shown),
        "stopped_groups": [_stopped(each, now) for each in stopped[:MAX_STOPPED]],
        "stopped_groups_left_out": max(0, len(stopped) - MAX_STOPPED),
    }


def events_payload(keeper: Watched, recorder: Recorder) -> dict[str, Any]:
    """Return the last releases and losses, and the calls per minute."""
    now, happenings = keeper.now(), recorder.happenings()
    return {
        "happenings": [{"what": each.what, **_happening(each.event, now)} for each in happenings],
        "happenings_left_out": recorder.happened - len(happenings),
        "calls_per_minute": [
            {"change_visibility": each.change_visibility, "delete": each.delete}
            for each in recorder.calls(now)
        ],
    }


def _queue(url: str) -> dict[str, str]:
    return {"queue": queue_name(url), "queue_url": url}


def _lease(lease: LeaseView, extended_ago: list[float]) -> dict[str, Any]:
    return {
        **_queue(lease.queue_url),
        "message_id": lease.message_id,
        "task": lease.task,
        "task_id": lease.task_id,
        "receive_count": lease.receive_count,
        "goal": lease.goal.value,
        "status": lease.status.value,
        "held_for": rounded(lease.held_for),
        "received_ago": rounded(lease.received_ago),
        "running_for": rounded(lease.running_for),
        "expires_in": rounded(lease.expires_in),
        "visibility_timeout": lease.visibility_timeout,
        "threshold": rounded(lease.threshold),
        "ended_for": rounded(lease.ended_for),
        "extensions": lease.extensions,
        "attempts": lease.attempts,
        "group": lease.group,
        "sequence_number": lease.sequence_number,
        "extended_ago": [rounded(ago) for ago in extended_ago],
    }


def _stopped(stopped: StoppedGroup, now: float) -> dict[str, Any]:
    event = stopped.event
    return {
        **_queue(event.queue_url),
        "group": event.group,
        "message_id": event.message_id,
        "task": event.task,
        "task_id": event.task_id,
        "receive_count": event.receive_count,
        "max_receive_count": event.max_receive_count,
        "cause": event.cause,
        "ago": rounded(now - event.at),
        "visible_in": rounded(stopped.visible_at - now),
    }


def _happening(event: Event, now: float) -> dict[str, Any]:
    return {
        "ago": rounded(now - event.at),
        "cause": event.cause,
        "queue": queue_name(event.queue_url),
        "message_id": event.message_id,
        "task": event.task,
        "task_id": event.task_id,
        "receive_count": event.receive_count,
        "held_for": rounded(event.held_for),
        "slack": rounded(event.slack),
    }

"""What the status page tells, as plain values. docs/status-page.md names the fields."""

from __future__ import annotations

from collections import Counter
from typing import Any

from celery_sqs_heartbeat.core.events import Event
from celery_sqs_heartbeat.core.lease import State
from celery_sqs_heartbeat.core.message import queue_name
from celery_sqs_heartbeat.core.view import LeaseView
from celery_sqs_heartbeat.health import KeeperHealth
from celery_sqs_heartbeat.keeper import LeaseKeeper
from celery_sqs_heartbeat.observe.recorder import Recorder
from celery_sqs_heartbeat.polled import PolledQueue, PolledQueues

#: Leases that are told of at once: those that end first. A page of more is no help.
MAX_LEASES = 500


def health_payload(keeper: LeaseKeeper, polled: PolledQueues | None = None) -> dict[str, Any]:
    """Return how the keeper does, and the polls. Waits for nothing, also where threads hang."""
    health = keeper.health
    queues = polled.view() if polled is not None else []
    return {
        "status": _status(health, queues),
        "last_round_age": _rounded(health.last_tick_age),
        "replaced": health.replaced,
        "standstills": health.standstills,
        "polls": [
            {
                "queue": each.queue,
                "last_answered_age": _rounded(each.age),
                "unanswered": each.unanswered,
                "deaf": each.is_deaf,
            }
            for each in queues
        ],
    }


def _status(health: KeeperHealth, queues: list[PolledQueue]) -> str:
    if not health.alive:
        return "dead"
    if health.late:
        return "late"
    return "deaf" if any(queue.is_deaf for queue in queues) else "ok"


def leases_payload(
    keeper: LeaseKeeper, recorder: Recorder, name: str, polled: PolledQueues | None = None
) -> dict[str, Any]:
    """Return the leases, and what they come to."""
    now, leases = keeper.now(), keeper.snapshot()
    marks = recorder.extended_at()
    states = Counter(lease.state for lease in leases)
    shown = sorted(leases, key=lambda lease: lease.expires_in)[:MAX_LEASES]
    return {
        "worker": name,
        "health": health_payload(keeper, polled),
        "in_flight": len(leases),
        "pending_deletes": states[State.DONE],
        "pending_releases": states[State.BACK],
        "oldest": _rounded(max((lease.held_for for lease in leases), default=None)),
        "leases": [
            _lease(lease, [now - at for at in marks.get((lease.queue_url, lease.message_id), ())])
            for lease in shown
        ],
    }


def events_payload(keeper: LeaseKeeper, recorder: Recorder) -> dict[str, Any]:
    """Return the last releases and losses, and the calls per minute."""
    now = keeper.now()
    return {
        "happenings": [
            {"what": each.what, **_happening(each.event, now)} for each in recorder.happenings()
        ],
        "calls_per_minute": [
            {"change_visibility": each.change_visibility, "delete": each.delete}
            for each in recorder.calls(now)
        ],
    }


def _lease(lease: LeaseView, extended_ago: list[float]) -> dict[str, Any]:
    return {
        "queue": queue_name(lease.queue_url),
        "queue_url": lease.queue_url,
        "message_id": lease.message_id,
        "task": lease.task,
        "task_id": lease.task_id,
        "receive_count": lease.receive_count,
        "state": lease.state.value,
        "standing": lease.standing.value,
        "held_for": _rounded(lease.held_for),
        "received_ago": _rounded(lease.received_ago),
        "expires_in": _rounded(lease.expires_in),
        "visibility_timeout": lease.visibility_timeout,
        "threshold": _rounded(lease.threshold),
        "ended_for": _rounded(lease.ended_for),
        "extensions": lease.extensions,
        "attempts": lease.attempts,
        "extended_ago": [_rounded(ago) for ago in extended_ago],
    }


def _happening(event: Event, now: float) -> dict[str, Any]:
    return {
        "ago": _rounded(now - event.at),
        "cause": event.cause,
        "queue": queue_name(event.queue_url),
        "message_id": event.message_id,
        "task": event.task,
        "task_id": event.task_id,
        "receive_count": event.receive_count,
        "held_for": _rounded(event.held_for),
        "slack": _rounded(event.slack),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

"""Checks a status page's answer. It may be of another version, or not a status page at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NO_PAGE = "this is not a worker's status page: check the address"
_COUNTS = (
    "in_flight",
    "running",
    "waiting",
    "pending_deletes",
    "pending_releases",
    "not_well",
    "groups",
    "behind",
)
_TIMES = ("oldest", "least_left")


def payload_fault(payload: Any) -> str | None:
    """Return what is wrong with the JSON of `/leases`, or None."""
    if not isinstance(payload, dict) or not isinstance(payload.get("leases"), list):
        return NO_PAGE
    if not _is_known(payload):
        return (
            "its worker runs another version of celery-sqs-heartbeat, whose totals this command "
            "can't read: use the same version for both"
        )
    return None


def _is_known(payload: Mapping[str, Any]) -> bool:
    health, tasks = payload.get("health"), payload.get("tasks")
    stopped = payload.get("stopped_groups")
    return (
        isinstance(health, dict)
        and isinstance(health.get("status"), str)
        and isinstance(payload.get("worker"), str)
        and _are_counts(payload, (*_COUNTS, "tasks_left_out", "stopped_groups_left_out"))
        and all(isinstance(payload.get(name), (int, float, type(None))) for name in _TIMES)
        and isinstance(tasks, list)
        and all(_is_task(task) for task in tasks)
        and isinstance(stopped, list)
        and all(_is_stopped_group(group) for group in stopped)
    )


def _is_task(task: Any) -> bool:
    return (
        isinstance(task, dict)
        and isinstance(task.get("queue"), str)
        and isinstance(task.get("task"), (str, type(None)))
        and _are_counts(task, _COUNTS)
        and all(isinstance(task.get(name), (int, float)) for name in _TIMES)
    )


def _is_stopped_group(group: Any) -> bool:
    return (
        isinstance(group, dict)
        and all(isinstance(group.get(name), str) for name in ("queue", "message_id", "cause"))
        and all(isinstance(group.get(name), (str, type(None))) for name in ("group", "task"))
        and isinstance(group.get("receive_count"), int)
        and all(isinstance(group.get(name), (int, float)) for name in ("ago", "visible_in"))
    )


def _are_counts(totals: Mapping[str, Any], names: Iterable[str]) -> bool:
    return all(isinstance(totals.get(name), int) for name in names)

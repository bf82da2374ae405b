"""Checks those of Celery's own settings that the heartbeat computes with.

Celery accepts any value, and fails later: during a worker's start, or at its first task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from celery_sqs_heartbeat.common.numeric import is_number


def celery_faults(app: Any) -> Iterator[str]:
    """Yield a sentence for each of Celery's settings that no worker can work with."""
    for name, (is_right, rule) in _RULES.items():
        value = app.conf.get(name)
        if value is not None and not is_right(value):
            yield f"{name}={value!r}: must be {rule}"
    for name, task in sorted(app.tasks.items()):
        for limit in ("time_limit", "soft_time_limit"):
            value = getattr(task, limit, None)
            is_own = value is not None and value != app.conf.get(f"task_{limit}")
            if is_own and not _is_limit(value):
                yield f"task {name!r}: {limit}={value!r}: must be {_LIMIT}"
    if fault := queues_fault(app):
        yield fault


def queues_fault(app: Any) -> str | None:
    """Return why the app's queues can't be made from its settings, or None."""
    try:
        names = list(app.amqp.queues)
    except Exception as error:
        return (
            f"task_queues={app.conf.task_queues!r}: can't be used ({type(error).__name__}: "
            f"{error}); set a list of kombu.Queue, or a dict of dicts by queue name"
        )
    wrong = [name for name in names if not isinstance(name, str)]
    return (
        f"task_queues or task_default_queue names a queue {wrong[0]!r}: must be a string"
        if wrong
        else None
    )


def is_count(value: Any) -> bool:
    """Return whether Celery reads a value as a whole number, 0 or more."""
    # Celery converts a string to a number.
    try:
        return int(value) >= 0
    except (TypeError, ValueError):
        return False


def _is_concurrency(value: Any) -> bool:
    # Celery uses its default for a string that it does not know.
    return isinstance(value, str) or is_count(value)


def _is_limit(value: Any) -> bool:
    return is_number(value) and value > 0


_LIMIT = "a number of seconds above 0"
#: The check of each setting, and its rule in words.
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "worker_prefetch_multiplier": (is_count, "a whole number, 0 or more"),
    "worker_concurrency": (_is_concurrency, "a whole number of processes, or 'auto'"),
    "worker_eta_task_limit": (is_count, "a whole number, 0 or more"),
    "task_time_limit": (_is_limit, _LIMIT),
    "task_soft_time_limit": (_is_limit, _LIMIT),
}

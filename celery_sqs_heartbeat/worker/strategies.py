"""Tasks with a strategy of their own: what Celery reports of their requests, and what not."""

from __future__ import annotations

from typing import Any

from celery.worker.strategy import default
from kombu.utils.imports import symbol_by_name


def has_own_strategy(task: Any) -> bool:
    """Return whether it is not Celery that gives the task's requests to the pool."""
    return symbol_by_name(task.Strategy) is not default


def gathers_requests(task: Any) -> bool:
    """Return whether the task's strategy gathers requests and runs many at once.

    As celery-batches does: its `flush` gives those that it is called with to the pool.
    """
    return has_own_strategy(task) and callable(getattr(task, "flush", None))

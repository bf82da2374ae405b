"""Recognizes tasks with their own strategy, of whose requests Celery reports less."""

from __future__ import annotations

from typing import Any

from celery.worker.strategy import default
from kombu.utils.imports import symbol_by_name


def has_own_strategy(task: Any) -> bool:
    """Return whether something other than Celery gives the task's requests to the pool."""
    return symbol_by_name(task.Strategy) is not default


def gathers_requests(task: Any) -> bool:
    """Return whether the task's strategy gathers requests and runs many at once.

    celery-batches does this: its `flush` gives the requests that it receives to the pool.
    """
    return has_own_strategy(task) and callable(getattr(task, "flush", None))

"""Whether the processes of a worker's pool are forked."""

from __future__ import annotations

from typing import Any

import billiard


def forks_pool(worker: Any) -> bool:
    """Return whether the pool's processes inherit the worker's memory.

    Since Celery 5.7 a setting has them started as interpreters of their own; on some
    systems billiard does so by itself.
    """
    method = getattr(worker, "pool_start_method", "fork")
    return bool(method == "fork" and billiard.get_start_method() == "fork")

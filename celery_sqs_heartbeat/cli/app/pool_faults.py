"""Checks whether a worker can use a pool."""

from __future__ import annotations

from importlib.util import find_spec

from celery.concurrency import get_available_pool_names
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.values import closest

#: Only looked up, because importing one of these could patch the standard library.
_LIBRARIES = ("eventlet", "gevent")


def pool_fault(pool: str) -> str | None:
    """Return why a worker can't use a pool, or None.

    Args:
        pool: One of Celery's names, or "MODULE:CLASS".
    """
    names = sorted(get_available_pool_names())
    if pool in names:
        if pool in _LIBRARIES and find_spec(pool) is None:
            return f"{pool} (the package {pool} is not installed)"
        return None
    if ":" not in pool and "." not in pool:
        close = closest(pool, names)
        hint = f"did you mean {close}? " if close else ""
        return f"{pool} ({hint}the pools are {', '.join(names)}, or MODULE:CLASS)"
    try:
        symbol_by_name(pool)
    except Exception as error:
        return f"{pool} (it can't be imported: {type(error).__name__}: {error})"
    return None

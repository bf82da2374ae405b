"""Ends a broken worker."""

from __future__ import annotations

from typing import Any

from celery.platforms import EX_FAILURE
from celery.worker import state


def end_worker(hub: Any, error: Exception) -> None:
    """End a broken worker as the error would end a stock one, with its exit code.

    Args:
        hub: Its event loop, where it has one.
    """
    if hub is not None:
        # Raised here, it might end no more than a timer.
        hub.call_soon(_end, error)
    else:
        state.should_stop = EX_FAILURE


def _end(error: Exception) -> None:
    # After an error of a connection Celery would reconnect, to receive nothing any more.
    state.should_stop = EX_FAILURE
    raise error

"""Checks a function that is set as the release delay."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def call_fault(value: Callable[..., Any]) -> str | None:
    """Return why a function can not be called with a receive count, or None."""
    if inspect.iscoroutinefunction(value):
        return "must be a plain function, not a coroutine function: nothing awaits it"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        # Some builtins have none to check.
        return None
    try:
        signature.bind(1)
    except TypeError as error:
        return (
            f"is called with the receive count as its only argument, and can't be: {error}; "
            "write it as `lambda receive_count: ...`"
        )
    return None

"""Checks a function that is set as the release delay."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

#: What a call gives no seconds of.
_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


def call_fault(value: Callable[..., Any]) -> str | None:
    """Return why a function can not be called with a receive count, or None."""
    if any(is_of_kind(value) or is_of_kind(_called(value)) for is_of_kind in _NOT_PLAIN):
        return "must be a plain function that returns seconds, neither a coroutine nor a generator"
    try:
        inspect.signature(value).bind(1)
    except (TypeError, ValueError) as error:
        return (
            f"must be a function of the receive count alone ({error}): write it as "
            "`lambda receive_count: ...`"
        )
    return None


def _called(value: Callable[..., Any]) -> Any:
    """Return what runs when an object is called, where it is no function itself."""
    while isinstance(value, functools.partial):
        value = value.func
    return value if inspect.isroutine(value) else getattr(value, "__call__", None)  # noqa: B004

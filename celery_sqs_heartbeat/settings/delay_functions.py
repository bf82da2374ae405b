"""Functions of the user's that are set as the release delay: which form they have."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any

#: What a function of the whole failure is called with, by keyword.
ARGUMENTS = ("exception", "receive_count", "message_age", "queue")
#: How such a function is written.
WRITTEN_AS = f"def backoff(*, {', '.join(ARGUMENTS)})"
#: What a call gives no seconds of.
_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


class Form(enum.Enum):
    """What a function is called with."""

    COUNT = "the receive count alone"
    FAILURE = "keyword arguments"


class BadFunction(ValueError):
    """A function can be called in neither form; the message says how it is written."""


def form_of(function: Callable[..., Any]) -> Form:
    """Return what a function is to be called with.

    Raises:
        BadFunction: It can be called in neither form, is not plain, or is a class.
    """
    if inspect.isclass(_unwrapped(function)):
        raise BadFunction("is a class, which returns no seconds: name a function that does")
    if any(is_of_kind(function) or is_of_kind(_called(function)) for is_of_kind in _NOT_PLAIN):
        raise BadFunction(
            "must be a plain function that returns seconds, neither a coroutine nor a generator"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadFunction(_way_out(error)) from None
    by_count = _misfit(signature, 1)
    by_keywords = _misfit(signature, **dict.fromkeys(ARGUMENTS))
    # One with `**kwargs` can be called in both: by its own names it shows what it wants.
    if by_keywords is None and (by_count is not None or signature.parameters.keys() & ARGUMENTS):
        return Form.FAILURE
    if by_count is None:
        return Form.COUNT
    names_ours = len(signature.parameters.keys() & ARGUMENTS) > 1
    raise BadFunction(_way_out((by_keywords if names_ours else by_count) or by_count))


def name_of(function: Any) -> str:
    """Return what a function is called in the log: its module and its name in there."""
    plain = _unwrapped(function)
    named = plain if hasattr(plain, "__qualname__") else type(plain)
    return f"{named.__module__}:{named.__qualname__}"


def _misfit(signature: inspect.Signature, *args: Any, **kwargs: Any) -> TypeError | None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return error
    return None


def _way_out(error: Exception) -> str:
    return (
        f"must be a function of the receive count alone, or of {', '.join(ARGUMENTS)} by keyword "
        f"({error}): write it as `lambda receive_count: ...` or `{WRITTEN_AS}`, with `**_` for "
        "those that it does not need"
    )


def _unwrapped(value: Any) -> Any:
    while isinstance(value, functools.partial):
        value = value.func
    return value


def _called(value: Callable[..., Any]) -> Any:
    """Return what runs when an object is called, where it is no function itself."""
    value = _unwrapped(value)
    return value if inspect.isroutine(value) else getattr(value, "__call__", None)  # noqa: B004

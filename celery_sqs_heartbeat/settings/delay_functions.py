"""Finds out how a user's release delay function can be called."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any

#: The keyword arguments of a function that receives the whole failure.
ARGUMENTS = ("exception", "receive_count", "message_age", "queue")
#: How to write that function.
WRITTEN_AS = f"def backoff(*, {', '.join(ARGUMENTS)})"
#: Kinds of functions whose call does not return seconds.
_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


class Form(enum.Enum):
    """The arguments that a function is called with."""

    COUNT = "the receive count alone"
    FAILURE = "keyword arguments"


class BadFunction(ValueError):
    """A function can be called in neither form; the message says how to write one."""


def form_of(function: Callable[..., Any]) -> Form:
    """Return the form in which a function must be called.

    Raises:
        BadFunction: It can be called in neither form, is not plain, or is a class.
    """
    if inspect.isclass(_unwrapped(function)):
        raise BadFunction("is a class: name a function that returns seconds")
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
    # A function with `**kwargs` can be called in both forms. Its named parameters decide.
    if by_keywords is None and (by_count is not None or signature.parameters.keys() & ARGUMENTS):
        return Form.FAILURE
    if by_count is None:
        return Form.COUNT
    names_ours = len(signature.parameters.keys() & ARGUMENTS) > 1
    raise BadFunction(_way_out((by_keywords if names_ours else by_count) or by_count))


def name_of(function: Any) -> str:
    """Return the name of a function for the log: its module and its name in it."""
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
        "the arguments that it does not need"
    )


def _unwrapped(value: Any) -> Any:
    while isinstance(value, functools.partial):
        value = value.func
    return value


def _called(value: Callable[..., Any]) -> Any:
    """Return what runs when an object is called: the object itself if it is a function."""
    value = _unwrapped(value)
    return value if inspect.isroutine(value) else getattr(value, "__call__", None)  # noqa: B004

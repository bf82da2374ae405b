"""Checks the setting `release_delay` in all its forms, and chooses the delay after a failure."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from celery_sqs_heartbeat.common.values import NotImportable, import_named, is_number, is_path
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.settings.release_policies import (
    BACKOFF,
    EXAMPLES,
    BadPolicy,
    Failure,
    number_fault,
    parse_policy,
)

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

#: Seconds; a list with one delay for each receive (the last repeats); or a function, see
#: `delay_functions`. A policy is a function of the receive count.
ReleaseDelay = float | Sequence[float] | Callable[..., float | None]
_WAY_OUT = (
    "must be seconds, a list of seconds by receive count, a function, its 'module:function', or "
    f"one of {', '.join(map(repr, EXAMPLES))}"
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


class UnusableDelay(SqsHeartbeatError, ValueError):
    """The function set as `release_delay` returned neither seconds nor None."""


def release_delay_fault(value: Any) -> str | None:
    """Return the fault of the setting, or None. A function that it names is imported."""
    try:
        read_release_delay(value)
    except (BadPolicy, BadFunction, NotImportable) as error:
        return str(error)
    if is_number(value):
        return number_fault(value)
    if isinstance(value, str) or callable(value):
        return None
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return _WAY_OUT
    if not value:
        return "must have at least one delay, for the first receive"
    return next((fault for item in value if (fault := number_fault(item))), None)


def read_release_delay(value: Any) -> Any:
    """Return the policy or the function that a text names. Other values are returned unchanged.

    Raises:
        BadPolicy: The text names no policy.
        NotImportable: It names a function that does not exist.
        BadFunction: The function, named or given, can't be called.
    """
    if isinstance(value, str):
        if not is_path(value):
            return parse_policy(value)
        value = import_named(value)
        if not callable(value):
            raise BadFunction(f"names {value!r}, which is not a function")
    if callable(value):
        form_of(value)
    return value


def choose_delay(setting: ReleaseDelay | None, failure: Failure) -> float | None:
    """Return the release delay after a failure, 0 to SQS's 12 hours, or None to keep the message.

    An unset setting is the default, `backoff`.

    Raises:
        UnusableDelay: The configured function returned no seconds.
        Exception: Whatever the configured function raised.
    """
    if setting is None:
        return BACKOFF(failure.receive_count)
    if callable(setting):
        takes_failure = form_of(setting) is Form.FAILURE
        return _usable(
            _of_failure(setting, failure) if takes_failure else setting(failure.receive_count)
        )
    if isinstance(setting, Sequence):
        return float(setting[min(max(failure.receive_count, 1), len(setting)) - 1])
    return float(setting)


def _of_failure(function: Callable[..., Any], failure: Failure) -> Any:
    return function(
        exception=failure.exception,
        receive_count=failure.receive_count,
        message_age=failure.message_age,
        queue=failure.queue,
    )


def _usable(delay: Any) -> float | None:
    """Return what a function returned, limited to what SQS accepts."""
    if delay is None:
        return None
    # NaN is not equal to itself.
    if not is_number(delay) or delay != delay:
        raise UnusableDelay(f"it returned {delay!r}: must be a number of seconds, or None")
    return float(min(max(delay, 0), MAX_VISIBILITY_SECONDS))

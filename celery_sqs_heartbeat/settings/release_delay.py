"""Checks the setting `release_delay` in all its forms, and chooses the delay after a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery_sqs_heartbeat.common.values import NotImportable, import_named, is_number, is_path
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.settings.delay_functions import BadFunction, Form, form_of
from celery_sqs_heartbeat.settings.failure import Failure
from celery_sqs_heartbeat.settings.number_check import number_fault
from celery_sqs_heartbeat.settings.policy_text import EXAMPLES, BadPolicy, parse_policy
from celery_sqs_heartbeat.settings.release_policies import BACKOFF

#: Seconds; a list with one delay for each receive (the last repeats); or a function, see
#: `delay_functions`. A policy is a function of the receive count.
ReleaseDelay = float | Sequence[float] | Callable[..., float | None]

_WAY_OUT = (
    "must be seconds, a list of seconds by receive count, a function, its 'module:function', or "
    f"one of {', '.join(map(repr, EXAMPLES))}"
)


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

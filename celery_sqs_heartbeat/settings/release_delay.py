"""Checks the setting `release_delay` in all its forms, and chooses the delay after a failure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from celery_sqs_heartbeat.common.importing import NotImportable, import_named, is_path
from celery_sqs_heartbeat.common.numeric import is_number
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.settings.delay_functions import BadFunction, Form, form_of
from celery_sqs_heartbeat.settings.failure import Failure
from celery_sqs_heartbeat.settings.number_check import number_fault
from celery_sqs_heartbeat.settings.policy_text import EXAMPLES, BadPolicy, Policy, parse_policy
from celery_sqs_heartbeat.settings.release_policies import ReleasePolicy, Verdict

#: Seconds; a list with one delay for each receive (the last repeats); a policy; or a function, see
#: `delay_functions`.
ReleaseDelay = float | Sequence[float] | Policy | Callable[..., float | None]

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


def choose_delay(
    setting: ReleaseDelay | None,
    failure: Failure,
    draw: Callable[[], float] = random.random,
) -> float | Verdict:
    """Return the release delay after a failure, 0 to SQS's 12 hours, or a verdict instead.

    `Verdict.USUAL` stands for an unset setting, and for 0 from a number, a list or a function of
    the receive count alone.

    Raises:
        UnusableDelay: The configured function returned no seconds.
        Exception: Whatever the configured function raised.
    """
    delay: Any = setting or 0
    if isinstance(delay, Verdict):
        return delay
    if isinstance(delay, ReleasePolicy):
        return delay.delay(failure.receive_count, draw())
    if callable(delay):
        return _returned(delay, failure)
    if isinstance(delay, Sequence):
        delay = delay[min(max(failure.receive_count, 1), len(delay)) - 1]
    return float(delay) or Verdict.USUAL


def _returned(function: Callable[..., Any], failure: Failure) -> float | Verdict:
    if form_of(function) is Form.FAILURE:
        return _usable(_of_failure(function, failure))
    return _usable(function(failure.receive_count)) or Verdict.USUAL


def _of_failure(function: Callable[..., Any], failure: Failure) -> Any:
    return function(
        exception=failure.exception,
        receive_count=failure.receive_count,
        message_age=failure.message_age,
        queue=failure.queue,
    )


def _usable(delay: Any) -> float | Verdict:
    """Return what a function returned, limited to what SQS accepts."""
    if delay is None:
        return Verdict.KEEP
    # NaN is not equal to itself.
    if not is_number(delay) or delay != delay:
        raise UnusableDelay(f"it returned {delay!r}: must be a number of seconds, or None")
    return float(min(max(delay, 0), MAX_VISIBILITY_SECONDS))

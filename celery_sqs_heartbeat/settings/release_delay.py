"""The setting `release_delay`: its forms, and the delay that it gives after a failure."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common.values import closest, import_named, is_number, is_path
from celery_sqs_heartbeat.errors import ConfigurationError, SqsHeartbeatError
from celery_sqs_heartbeat.leases.lease import SQS

#: Doublings after which any delay is longer than SQS allows.
_MOST_DOUBLINGS = 64
#: Seconds; a list with one delay for each receive (the last repeats); or a function that returns
#: seconds, or None to keep the message hidden. It is called with facts of a `Failure` by keyword.
ReleaseDelay = float | Sequence[float] | Callable[..., float | None]
#: The keyword arguments of such a function.
ARGUMENTS = ("exception", "receive_count", "message_age", "queue")
#: Kinds of objects whose call does not return seconds.
_NOT_PLAIN = (inspect.isclass, inspect.iscoroutinefunction, inspect.isgeneratorfunction)


class UnusableDelay(SqsHeartbeatError, ValueError):
    """The function set as `release_delay` returned neither seconds nor None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """The known attributes of the queue that a message came from.

    Attributes:
        name: The name that Celery uses.
        visibility_timeout: The one of the message's lease, in seconds.
        max_receive_count: From its redrive policy; None without one, or if it is not known.
        is_known: Whether the queue's attributes are known. If not, `max_receive_count` is None.
    """

    name: str
    url: str
    visibility_timeout: int
    max_receive_count: int | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed task whose message stays in the queue.

    Attributes:
        receive_count: How often SQS had delivered the message, at least 1.
        exception: The type that the task raised; None if it is not known.
        message_age: Seconds since the message was sent; None if SQS did not return it.
    """

    queue: QueueInfo
    receive_count: int
    exception: type[BaseException] | None = None
    message_age: float | None = None

    @property
    def is_last_receive(self) -> bool:
        """Whether SQS moves the message to the dead-letter queue instead of delivering it again."""
        most = self.queue.max_receive_count
        return most is not None and self.receive_count >= most


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A release delay that doubles with each receive. Times in seconds.

    An object and no inner function, so that an app with this setting can be pickled.

    Attributes:
        first: The delay after the first receive.
        longest: The delay stops growing here.
        jitter: Whether to draw a random delay from the upper half of that. Messages that failed
            together then do not return together.

    Raises:
        ConfigurationError: A number is not possible.
    """

    first: float = 2
    longest: float = 900
    jitter: bool = True

    def __post_init__(self) -> None:
        # A first delay of 0 would never grow.
        numbers = is_number(self.first) and is_number(self.longest)
        if not (numbers and 0 < self.first <= self.longest <= SQS.longest_timeout):
            raise ConfigurationError(
                [
                    f"{self}: first must be above 0, and longest from first to "
                    f"{SQS.longest_timeout} seconds"
                ]
            )

    def __call__(self, receive_count: int, **_: Any) -> float:
        """Return a release delay, as a user's function does."""
        doublings = min(max(receive_count, 1) - 1, _MOST_DOUBLINGS)
        delay = min(self.first * 2.0**doublings, self.longest)
        return delay * random.uniform(0.5, 1) if self.jitter else delay


_GROWING = ExponentialDelay(first=2, longest=300)


def backoff(receive_count: int, **_: Any) -> float:
    """Return the default release delay: at once after the first receive, then ever longer.

    One failure may be an accident, and the next try should not wait for it. After more, something
    is down: a message must not use up its receives in less time than a restart takes.
    """
    return _GROWING(receive_count - 1) if receive_count > 1 else 0.0


def keep(**_: Any) -> None:
    """Let the lease expire: the message becomes visible when its visibility timeout ends."""


#: The release delays that have a name, for configurations that have no functions.
NAMED: Mapping[str, ReleaseDelay] = {
    "backoff": backoff,
    # At once, even if a message that always fails would then repeat indefinitely.
    "immediate": 0,
    "keep": keep,
}
_NAMES = ", ".join(map(repr, NAMED))


def seconds(value: Any, *, above: float | None = None, low: float = 0) -> float:
    """Return a number of seconds up to SQS's 12 hours.

    Raises:
        ValueError: It is none; the message says what it must be.
    """
    if not is_number(value):
        raise ValueError(f"must be a number of seconds, not {type(value).__name__}")
    if above is not None and not above < value <= SQS.longest_timeout:
        raise ValueError(f"must be above {above:g} and at most {SQS.longest_timeout} seconds")
    if not low <= value <= SQS.longest_timeout:
        raise ValueError(f"must be {low:g} to {SQS.longest_timeout} seconds")
    return value


def read_release_delay(value: Any) -> ReleaseDelay:
    """Return the release delay that a value of the setting means. A named function is imported.

    Raises:
        ValueError: It means none; the message says how to write one.
    """
    if isinstance(value, str):
        value = _named(value)
    if callable(value):
        _check_function(value)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        if not value:
            raise ValueError("must have at least one delay, for the first receive")
        for each in value:
            seconds(each)
    elif is_number(value):
        seconds(value)
    else:
        raise ValueError(
            f"must be seconds, a list of seconds by receive count, {_NAMES}, a function or its "
            "'module:function'"
        )
    return value  # type: ignore[no-any-return]


def _named(text: str) -> Any:
    if text in NAMED:
        return NAMED[text]
    if is_path(text):
        function = import_named(text)
        if not callable(function):
            raise ValueError(f"names {function!r}, which is not a function")
        return function
    if close := closest(text, NAMED):
        raise ValueError(f"is not a release delay; did you mean {close!r}?")
    raise ValueError(
        f"is text: write seconds or a list of them without quotes, one of {_NAMES}, or a "
        "function as 'proj.delays:backoff'"
    )


def _check_function(function: Callable[..., Any]) -> None:
    if any(is_of_kind(function) for is_of_kind in _NOT_PLAIN):
        raise ValueError(
            "must be a plain function that returns seconds, no class, coroutine or generator"
        )
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"must be a function of {', '.join(ARGUMENTS)}, which are given by keyword ({error}): "
            "write it as `def backoff(*, receive_count, **_)`, with `**_` for those that it does "
            "not need"
        ) from None


def name_of(function: Any) -> str:
    """Return the name of a function for the log: its module and its name in it."""
    plain = function.func if isinstance(function, partial) else function
    named = plain if hasattr(plain, "__qualname__") else type(plain)
    return f"{named.__module__}:{named.__qualname__}"


def choose_delay(setting: ReleaseDelay | None, failure: Failure) -> float | None:
    """Return the release delay after a failure, 0 to SQS's 12 hours, or None to keep the message.

    An unset setting is the default, `backoff`.

    Raises:
        UnusableDelay: The configured function returned no seconds.
        Exception: Whatever the configured function raised.
    """
    if setting is None:
        return backoff(failure.receive_count)
    if not callable(setting):
        delays = setting if isinstance(setting, Sequence) else (setting,)
        return float(delays[min(max(failure.receive_count, 1), len(delays)) - 1])
    delay = setting(**{name: getattr(failure, name) for name in ARGUMENTS})
    if delay is None:
        return None
    # NaN is not equal to itself.
    if not is_number(delay) or delay != delay:
        raise UnusableDelay(f"it returned {delay!r}: must be a number of seconds, or None")
    return float(min(max(delay, 0), SQS.longest_timeout))

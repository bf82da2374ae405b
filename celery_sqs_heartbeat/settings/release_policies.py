"""The release policies that have a name: the facts they use, and how they are written.

The grammar is small: a name, or a name with numbers, True and False in brackets. No Python
expression is evaluated.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.common.values import closest, is_number
from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS

#: Receives after which a delay stops growing: larger integers may not convert to a float.
_MOST_STEPS = 10**9
#: Doublings after which any delay is longer than SQS allows.
_MOST_DOUBLINGS = 64
#: From a receive count to seconds, or None to keep the message hidden.
Policy = Callable[[int], float | None]
_CALL = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", re.ASCII)
_ARGUMENT = re.compile(r"\s*(?:([a-z]\w*)\s*=)?\s*(\S+)\s*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
_WORDS = {"True": True, "False": False}


def number_fault(value: Any, *, above: float | None = None, low: float = 0) -> str | None:
    """Check a number of seconds up to SQS's 12 hours."""
    if not is_number(value):
        return f"must be a number of seconds, not {type(value).__name__}"
    if above is not None and not above < value <= MAX_VISIBILITY_SECONDS:
        return f"must be above {above:g} and at most {MAX_VISIBILITY_SECONDS} seconds"
    if above is None and not low <= value <= MAX_VISIBILITY_SECONDS:
        return f"must be {low:g} to {MAX_VISIBILITY_SECONDS} seconds"
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """How long a message is hidden after its task failed. Times in seconds.

    Attributes:
        first: The delay after the first receive.
        step: Added with each further receive.
        doubles: Whether the delay doubles with each further receive.
        jitter: Whether to draw a random delay from the upper half of that. Messages that failed
            together then do not return together.
        at_once: After how many of the first receives the message is released at once.
    """

    first: float
    step: float = 0.0
    doubles: bool = False
    most: float = MAX_VISIBILITY_SECONDS
    jitter: bool = False
    at_once: int = 0

    @classmethod
    def fixed(cls, seconds: float) -> ReleasePolicy:
        """Return the policy with the same delay each time."""
        return cls(first=seconds)

    # Users write `max`.
    @classmethod
    def linear(cls, step: float, max: float = MAX_VISIBILITY_SECONDS) -> ReleasePolicy:  # noqa: A002
        """Return the policy of `step` seconds, then twice that, three times that and so on."""
        return cls(first=step, step=step, most=max)

    @classmethod
    def exponential(
        cls,
        base: float = 2,
        max: float = 900,  # noqa: A002
        jitter: bool = True,
    ) -> ReleasePolicy:
        """Return the policy of `base` seconds, doubled with each further receive.

        `base` is the first delay, not the base of a power: 5, 10, 20, ... for 5.
        """
        return cls(first=base, doubles=True, most=max, jitter=jitter)

    def __call__(self, receive_count: int) -> float:
        """Return a release delay, as a user's function does."""
        return self.delay(receive_count, random.random())

    def delay(self, receive_count: int, draw: float) -> float:
        """Return the release delay, in seconds.

        Args:
            receive_count: How often SQS has delivered the message.
            draw: A random number from 0 to 1, for the jitter.
        """
        further = min(max(receive_count, 1) - 1, _MOST_STEPS) - self.at_once
        if further < 0:
            return 0.0
        seconds = self.first + self.step * further
        if self.doubles:
            seconds *= 2.0 ** min(further, _MOST_DOUBLINGS)
        seconds = min(seconds, self.most)
        return seconds * (0.5 + 0.5 * draw) if self.jitter else seconds


def keep(receive_count: int) -> None:
    """Let the lease expire: the message becomes visible when its visibility timeout ends."""


#: At once, even if a message that always fails would then repeat indefinitely.
IMMEDIATE = ReleasePolicy.fixed(0)
#: The default. One failure may be an accident, and the next try should not wait for it. After more,
#: something is down: a message must not use up its receives in less time than a restart takes.
BACKOFF = ReleasePolicy(first=2, doubles=True, most=300, jitter=True, at_once=1)


#: By name: the function that makes the policy, and an example of its text.
_POLICIES: Mapping[str, tuple[Callable[..., Policy], str]] = {
    "backoff": (lambda: BACKOFF, "backoff"),
    "immediate": (lambda: IMMEDIATE, "immediate"),
    "keep": (lambda: keep, "keep"),
    "fixed": (ReleasePolicy.fixed, "fixed(30)"),
    "linear": (ReleasePolicy.linear, "linear(10, max=600)"),
    "exponential": (ReleasePolicy.exponential, "exponential(base=2, max=900, jitter=True)"),
}
#: The text of every policy, for errors and documents.
EXAMPLES = tuple(example for _, example in _POLICIES.values())


class BadPolicy(ValueError):
    """The text names no release policy; the message says how to write one."""


def parse_policy(text: str) -> Policy:
    """Return the policy that a text names.

    Raises:
        BadPolicy: It names none.
    """
    found = _CALL.fullmatch(text)
    if found is None or found[1] not in _POLICIES:
        raise BadPolicy(_unknown(text, found and found[1]))
    name, arguments = found[1], found[2]
    make, example = _POLICIES[name]
    positional, named = _read_arguments(arguments, example)
    has_brackets, needs_brackets = arguments is not None, "(" in example
    if has_brackets != needs_brackets and not positional and not named:
        raise BadPolicy(f"must be written as {example!r}")
    try:
        bound = inspect.signature(make).bind(*positional, **named)
    except TypeError as error:
        raise BadPolicy(f"{error}: write it as {example!r}") from None
    bound.apply_defaults()
    if fault := _values_fault(bound.arguments):
        raise BadPolicy(f"{fault}; write it as {example!r}")
    return make(**bound.arguments)


def _unknown(text: str, name: str | None) -> str:
    if _NUMBER.fullmatch(text.strip()):
        return f"is text: write the number without quotes, or 'fixed({text.strip()})'"
    if "." in text and re.fullmatch(r"[\w.]+", text):
        module, _, function = text.rpartition(".")
        return f"is not a release policy: write a function as {f'{module}:{function}'!r}"
    close = closest(name, _POLICIES) if name else None
    if close is not None:
        return f"is not a release policy; did you mean {_POLICIES[close][1]!r}?"
    known = ", ".join(map(repr, EXAMPLES))
    return f"is not a release policy; write one of {known}, or 'module:function' for your own"


def _read_arguments(text: str | None, example: str) -> tuple[list[float], dict[str, float]]:
    positional: list[float] = []
    named: dict[str, float] = {}
    for part in text.split(",") if text and text.strip() else ():
        found = _ARGUMENT.fullmatch(part)
        value = _value(found[2]) if found else None
        if found is None or value is None:
            raise BadPolicy(f"{part.strip()!r} is not a number: write it as {example!r}")
        name = found[1]
        if name is None and named:
            raise BadPolicy(
                f"{part.strip()!r} has no name, but follows a named argument: "
                f"write it as {example!r}"
            )
        if name in named:
            raise BadPolicy(f"{name} is given twice: write it as {example!r}")
        if name is None:
            positional.append(value)
        else:
            named[name] = value
    return positional, named


def _value(text: str) -> float | None:
    if text in _WORDS:
        return _WORDS[text]
    return float(text) if _NUMBER.fullmatch(text) else None


def _values_fault(arguments: Mapping[str, Any]) -> str | None:
    for name, value in arguments.items():
        if name == "jitter":
            if not isinstance(value, bool):
                return "jitter must be True or False"
        # A first delay of 0 would never grow.
        elif fault := number_fault(value, above=None if name == "seconds" else 0):
            return f"{name}={value:g} {fault}"
    first = arguments.get("step", arguments.get("base", 0))
    most = arguments.get("max", MAX_VISIBILITY_SECONDS)
    return None if first <= most else f"max={most:g} must be at least the first delay, {first:g}"

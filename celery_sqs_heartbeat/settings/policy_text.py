"""Reads a release policy that is set as text, such as `linear(10, max=600)`.

The grammar is small: a name, or a name with numbers, True and False in brackets. No Python
expression is evaluated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.leases.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.settings.number_check import number_fault
from celery_sqs_heartbeat.settings.release_policies import BACKOFF, IMMEDIATE, ReleasePolicy, keep
from celery_sqs_heartbeat.settings.suggesting import closest

#: From a receive count to seconds, or None to keep the message hidden.
Policy = Callable[[int], float | None]

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

_CALL = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", re.ASCII)
_ARGUMENT = re.compile(r"\s*(?:([a-z]\w*)\s*=)?\s*(\S+)\s*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
_WORDS = {"True": True, "False": False}


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

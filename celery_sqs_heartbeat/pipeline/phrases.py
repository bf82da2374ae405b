"""Durations, numbers, times and counts in words, for people."""

from __future__ import annotations

import datetime
import math
import re

from celery_sqs_heartbeat.pipeline.schema import RATIO

#: Used between a number and its unit while text is wrapped.
GLUE = "\N{NO-BREAK SPACE}"
#: Shown for an unknown value.
DASH = "\N{EN DASH}"

_MINUS = "\N{MINUS SIGN}"
_MICROSECONDS = 1_000_000
#: Units below a minute, and their length in seconds.
_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
#: Units from a minute up, each with the smaller unit for the rest.
_LARGE = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
#: Shorter durations are shown as less than this.
_LEAST_SECONDS = 10e-6
#: Smaller amounts are shown as less than this.
_LEAST_DOLLARS = 0.0001
_DIGITS = 3
#: Below this a fraction is a rounding error.
_TINY = 1e-9


def text(value: object) -> str:
    """Return a value as text."""
    return DASH if value is None else str(value)


def number(value: float | None) -> str:
    """Return a number: 1,234,567 or 0.012."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"


def dollars(value: float | None) -> str:
    """Return an amount of money."""
    if value is None:
        return DASH
    if 0 < value < _LEAST_DOLLARS:
        return f"< ${_LEAST_DOLLARS}"
    return f"${value:,.2f}" if abs(value) >= 1 or not value else f"${value:.2g}"


def moment(microseconds: float | None) -> str:
    """Return a time in UTC, to the second."""
    if microseconds is None:
        return DASH
    at = datetime.datetime.fromtimestamp(microseconds // _MICROSECONDS, datetime.timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}"


def span(microseconds: float | None, *, up: bool = False) -> str:
    """Return a duration with its unit: three figures, or two units.

    Args:
        up: Round up, for an upper limit.
    """
    if microseconds is None:
        return DASH
    seconds = abs(microseconds) / _MICROSECONDS
    sign = _MINUS if microseconds < 0 else ""
    if 0 < seconds < _LEAST_SECONDS:
        return "< 10 µs"
    whole = math.ceil(seconds - _TINY) if up else round(seconds)
    for size, unit, small_size, small_unit in _LARGE:
        if whole >= size:
            rest = whole % size / small_size
            less = math.ceil(rest) if up else round(rest)
            more, less = (whole // size + less * small_size // size, less % (size // small_size))
            return f"{sign}{more:,} {unit}" + (f" {less} {small_unit}" if less else "")
    # A duration that rounds to 1 of a unit is shown in that unit.
    length, unit = next((each for each in _SMALL if seconds >= 0.9995 * each[0]), (1.0, "s"))
    return f"{sign}{_figures(seconds / length, up=up)} {unit}"


def seconds(length: float) -> str:
    """Return a duration in seconds as `span` does."""
    return span(length * _MICROSECONDS)


def share(part: float) -> str:
    """Return a part of 1 in percent."""
    return f"{part:.1%}"


def at_most(middle_us: float | None) -> str:
    """Return the upper edge of a histogram's bin.

    Args:
        middle_us: The middle of the bin, in microseconds.
    """
    return span(None if middle_us is None else middle_us * RATIO**0.5, up=True)


def count(number: int, noun: str, nouns: str = "") -> str:
    """Return "1 attempt" or "2,000 attempts".

    Args:
        nouns: The plural, if it is not the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def sentence(words: str) -> str:
    """Return words with a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def glued(words: str) -> str:
    """Return words with no line break between a number and its unit."""
    return re.sub(r"(?<=\d) (?=\w)", GLUE, words)


def _figures(value: float, *, up: bool) -> str:
    if up and value:
        unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
        value = math.ceil(value / unit - _TINY) * unit
    return f"{value:,.0f}" if value >= 10 ** (_DIGITS - 1) else f"{value:.{_DIGITS}g}"

"""Numbers, times and amounts as text for people. An unknown value is a dash."""

from __future__ import annotations

import datetime

from celery_sqs_heartbeat.pipeline import phrases

DASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
_MICROSECONDS = 1_000_000
#: Smaller amounts are shown as less than this.
_LEAST_DOLLARS = 0.0001


def text(value: object) -> str:
    """Return a value as text."""
    return DASH if value is None else str(value)


def number(value: float | None) -> str:
    """Return a number for people: 1,234,567 or 0.012."""
    if value is None:
        return DASH
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def dollars(value: float | None) -> str:
    """Return an amount of money."""
    if value is None:
        return DASH
    if 0 < value < _LEAST_DOLLARS:
        return f"< ${_LEAST_DOLLARS}"
    return f"${value:,.2f}" if abs(value) >= 1 or not value else f"${value:.2g}"


def span(microseconds: float | None) -> str:
    """Return a duration with its unit."""
    return DASH if microseconds is None else phrases.span(microseconds).replace("-", _MINUS)


def at_most(middle_us: float | None) -> str:
    """Return the upper edge of a histogram's bin, given its middle."""
    return DASH if middle_us is None else phrases.at_most(middle_us)


def moment(microseconds: float | None) -> str:
    """Return a time in UTC, to the second."""
    if microseconds is None:
        return DASH
    at = datetime.datetime.fromtimestamp(microseconds // _MICROSECONDS, datetime.timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}"

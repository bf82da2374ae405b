"""Decides whether a line is an event: it has all required fields, with the contract's types."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.journal.folder import day_of

#: The fields that each line must have.
_REQUIRED = ("v", "ts", "seq", "ev", "wid")


def is_event(fields: Mapping[str, Any]) -> bool:
    """Return whether a line's fields are an event. Its kind may be unknown."""
    has_all = all(fields.get(name) is not None for name in _REQUIRED)
    return (
        has_all
        and all(fields.get(name) is None or fits(fields[name]) for name, fits in _FITS.items())
        and _is_time(fields["ts"])
    )


def _whole(bits: int) -> Callable[[object], bool]:
    limit = 1 << (bits - 1)
    return lambda value: type(value) is int and -limit <= value < limit


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and all(
        each is None or isinstance(each, str) for each in value.values()
    )


_TYPES = {
    "int": _whole(32),
    "bigint": _whole(64),
    "string": _is_text,
    "map<string,string>": _is_map,
}
_FITS = {field.name: _TYPES[field.type] for field in FIELDS}


def _is_time(ts: int) -> bool:
    """Return whether a time in microseconds is on a valid calendar day."""
    try:
        return day_of(ts) >= datetime.date.min.isoformat()
    except (OverflowError, ValueError):
        return False

"""Decides whether what a line holds is an event: what each has, in the contract's types."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.journal.layout import day_of

#: What each line has.
_REQUIRED = ("v", "ts", "seq", "ev", "wid")


def is_event(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields of a line are those of an event; its kind may be a new one."""
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
    """Return whether the calendar has the day of a time in microseconds."""
    try:
        return day_of(ts) >= datetime.date.min.isoformat()
    except (OverflowError, ValueError):
        return False

"""Converts records to lines of compact JSON, and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from celery_sqs_heartbeat.journal.journal_events import EVENTS, Record

#: ASCII only, because task names may contain characters that UTF-8 can't encode.
_encode = json.JSONEncoder(separators=(",", ":")).encode

_DEFAULTS = {
    record: tuple((each.name, each.default) for each in dataclasses.fields(record))
    for record in EVENTS.values()
}

#: The start and the end of each complete line.
_BEGIN = b'{"v":'
_END = b"}\n"


def slim(record: Record) -> dict[str, Any]:
    """Return the record's fields, except those with default values."""
    return {
        name: value
        for name, default in _DEFAULTS[type(record)]
        if (value := getattr(record, name)) != default
    }


def line_of(record: Record) -> bytes:
    """Return the record as one line, with a line break."""
    return _encode(slim(record)).encode() + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether a line was written to its end."""
    return line.startswith(_BEGIN) and line.endswith(_END)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None if it is torn or not a line of a journal."""
    if not is_whole(line):
        return None
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return fields

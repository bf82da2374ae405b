"""Records as lines of slim JSON, and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from celery_sqs_heartbeat.journal.journal_events import EVENTS, Record

#: ASCII only: names of tasks may hold what UTF-8 can't encode.
_encode = json.JSONEncoder(separators=(",", ":")).encode

_DEFAULTS = {
    record: tuple((each.name, each.default) for each in dataclasses.fields(record))
    for record in EVENTS.values()
}

#: How each whole line begins and ends.
_BEGIN = b'{"v":'
_END = b"}\n"


def slim(record: Record) -> dict[str, Any]:
    """Return the record's fields, but for those that are as they are by default."""
    return {
        name: value
        for name, default in _DEFAULTS[type(record)]
        if (value := getattr(record, name)) != default
    }


def line_of(record: Record) -> bytes:
    """Return the record as one line with its end."""
    return _encode(slim(record)).encode() + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether a line was written to its end."""
    return line.startswith(_BEGIN) and line.endswith(_END)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None where it is torn or no line of a journal's."""
    if not is_whole(line):
        return None
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return fields

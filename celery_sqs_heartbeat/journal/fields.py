"""The table of the journal's fields, for documents and schemas."""

from __future__ import annotations

import dataclasses

from celery_sqs_heartbeat.journal.journal_events import (
    CALLED,
    EVENTS,
    PERMISSIONS,
    MessageRecord,
    Record,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of the journal's lines.

    Attributes:
        type: As in Spark's DDL.
        unit: Unit of a number, or empty.
        events: The events that may have the field.
    """

    name: str
    type: str
    unit: str
    meaning: str
    events: frozenset[str]


def _fields_of(event: str, record: type[Record]) -> dict[str, Field]:
    return {
        each.name: Field(
            name=each.name,
            type=each.metadata["type"],
            unit=each.metadata["unit"],
            meaning=each.metadata["meaning"],
            events=frozenset({event}),
        )
        for each in dataclasses.fields(record)
        if event in (each.metadata["events"] or {event})
    }


def _table() -> tuple[Field, ...]:
    table: dict[str, Field] = {}
    for event, record in EVENTS.items():
        for name, field in _fields_of(event, record).items():
            known = table.get(name, field)
            table[name] = dataclasses.replace(field, events=known.events | field.events)
    return tuple(table.values())


FIELDS = _table()

_OF_MESSAGES = frozenset(event for event, record in EVENTS.items() if record is MessageRecord)
_GROUPS = {
    frozenset(EVENTS): "all",
    _OF_MESSAGES: "all message events",
    CALLED: "results of calls",
    CALLED | PERMISSIONS: "results of calls, `permission-...`",
    PERMISSIONS: "`permission-...`",
    frozenset(EVENTS) - _OF_MESSAGES: "all worker events",
}


def markdown() -> str:
    """Return the table as Markdown."""
    rows = [
        f"| `{field.name}` | {field.type} | {field.unit} | {field.meaning} | {_which(field)} |"
        for field in FIELDS
    ]
    return "\n".join(["| field | type | unit | meaning | in |", "|---|---|---|---|---|", *rows])


def _which(field: Field) -> str:
    names = ", ".join(f"`{event}`" for event in EVENTS if event in field.events)
    return _GROUPS.get(field.events, names)

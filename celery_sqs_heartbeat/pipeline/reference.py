"""The tables of the warehouse for the documents."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.schema import PARTITION, TABLES, Table


def markdown() -> str:
    """Return each table's columns as Markdown."""
    return "\n\n".join(_section(table) for table in TABLES.values())


def _section(table: Table) -> str:
    rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in table.columns]
    return "\n".join(
        [
            f"### `{table.name}`",
            "",
            f"{table.meaning[0].upper()}{table.meaning[1:]}. `{PARTITION}` is the day of "
            f"{table.day_of}.",
            "",
            "| column | type | meaning |",
            "|---|---|---|",
            # Two stars would begin bold text.
            *(row.replace("**", "^") for row in rows),
        ]
    )

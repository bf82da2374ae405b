"""Prints the tables of the warehouse and the causes of duplicates, for pipeline.md."""

from __future__ import annotations

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, TABLES, Table
from celery_sqs_heartbeat.pipeline.tables.causes import CAUSES


def tables() -> str:
    """Return the columns of each table as Markdown."""
    return "\n\n".join(_section(table) for table in TABLES.values())


def causes() -> str:
    """Return the causes of duplicates as a Markdown table."""
    rows = [
        f"| `{name}` | {cause.meaning} | {cause.sign} | {cause.advice} |\n"
        for name, cause in CAUSES.items()
    ]
    head = "| cause | meaning | sign in the journal | what to do |\n"
    return "".join([head, "|---|---|---|---|\n", *rows])


def _section(table: Table) -> str:
    # journal.md has these fields with the same types and meanings.
    elsewhere = {field.name for field in FIELDS} if table is EVENTS else set()
    rows = [
        f"| `{column.name}` | {column.type} | {column.meaning} |"
        for column in table.columns
        if column.name not in elsewhere
    ]
    more = " Its columns are the [journal's fields](journal.md#fields), and:" if elsewhere else ""
    return "\n".join(
        [
            f"### `{table.name}`",
            "",
            f"{table.meaning[0].upper()}{table.meaning[1:]}. `{PARTITION}` is the day of "
            f"{table.day_of}.{more}",
            "",
            "| column | type | meaning |",
            "|---|---|---|",
            # Two stars would start bold text.
            *(row.replace("**", "^") for row in rows),
        ]
    )


if __name__ == "__main__":
    print(causes(), tables(), sep="\n")

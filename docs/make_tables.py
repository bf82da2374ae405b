"""Prints the tables of the warehouse and the causes of duplicates, for pipeline.md."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.schema import PARTITION, TABLES, Table
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
            # Two stars would start bold text.
            *(row.replace("**", "^") for row in rows),
        ]
    )


if __name__ == "__main__":
    print(causes(), tables(), sep="\n")

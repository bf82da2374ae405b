"""Prints the tables of the warehouse and the causes of duplicates, for pipeline.md."""

from __future__ import annotations

from dataclasses import astuple

from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.schema import PARTITION, TABLES, Table
from celery_sqs_heartbeat.pipeline.tables.causes import CAUSES


def tables() -> str:
    """Return the columns of each table as Markdown."""
    return "\n\n".join(_section(table) for table in TABLES.values())


def causes() -> str:
    """Return the causes of duplicates as a Markdown table."""
    rows = [f"| `{name}` | {cause.meaning} | {cause.sign} |\n" for name, cause in CAUSES.items()]
    return "".join(["| cause | meaning | sign in the journal |\n|---|---|---|\n", *rows])


def _section(table: Table) -> str:
    # With the same meaning: journal.md says it.
    fields = {(field.name, field.type, field.meaning) for field in FIELDS}
    shared = [each.name for each in table.columns if astuple(each) in fields]
    own = [each for each in table.columns if each.name not in shared]
    names = ", ".join(f"`{name}`" for name in shared)
    return "\n".join(
        [
            f"### `{table.name}`",
            "",
            f"{table.meaning[0].upper()}{table.meaning[1:]}. `{PARTITION}` is the day of "
            f"{table.day_of}.",
            "",
            *([f"Fields of the [journal](journal.md#fields): {names}.", ""] if shared else []),
            "| column | meaning |",
            "|---|---|",
            # Two stars would start bold text.
            *(f"| `{c.name}` | {c.meaning} |".replace("**", "^") for c in own),
        ]
    )


if __name__ == "__main__":
    print(causes(), tables(), sep="\n")

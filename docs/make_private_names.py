"""Write the tables of private names into private-names.md."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from celery_sqs_heartbeat.worker.compat.needs import Need
from celery_sqs_heartbeat.worker.compat.private_names import PRIVATE
from celery_sqs_heartbeat.worker.compat.versions import VERIFIED, distribution_of

DOCUMENT = Path(__file__).with_name("private-names.md")
BEGIN = "<!-- The tables are of docs/make_private_names.py: change worker/compat/ instead. -->\n"
END = "<!-- End of the tables. -->\n"
#: The titles of packages whose name is spelled differently.
_TITLES = {
    "celery": "Celery",
    "celery_batches": "celery-batches",
    "pyspark": "PySpark",
    "python": "Python",
}


def tables() -> str:
    """Return the private names as Markdown tables, one for each class or module."""
    order = list(VERIFIED)
    needs = sorted(PRIVATE, key=lambda need: order.index(_distribution(need)))
    parts = []
    for distribution, of_package in groupby(needs, _distribution):
        parts.append(f"## {_TITLES.get(distribution, distribution)}\n")
        parts += [_table(*owner, list(rows)) for owner, rows in groupby(of_package, _owner)]
    return "\n".join(parts)


def with_tables(text: str) -> str:
    """Return the document with the current tables.

    Raises:
        ValueError: The document lacks the marker lines.
    """
    before, marked, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not marked or not closed:
        raise ValueError(f"{DOCUMENT.name} must have the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _distribution(need: Need) -> str:
    return distribution_of(need.package)


def _owner(need: Need) -> tuple[str, str | None]:
    return need.owner, need.only


def _table(owner: str, only: str | None, needs: list[Need]) -> str:
    return "".join(
        [
            f"### `{owner}`{f', for {only}' if only else ''}\n\n",
            "| name | what we do with it | verified on | what would replace it |\n",
            "|---|---|---|---|\n",
            *map(_row, needs),
        ]
    )


def _row(need: Need) -> str:
    why = f"overridden: {need.why}" if need.by else need.why
    return f"| `{need.name}` | {why} | {_versions(need)} | {need.instead} |\n"


def _versions(need: Need) -> str:
    oldest, newest = VERIFIED[_distribution(need)]
    first, last = (".".join(map(str, each)) for each in (need.since or oldest, newest))
    return first if first == last else f"{first} to {last}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

"""Writes the table of settings into settings.md: `python docs/make_reference.py`."""

from __future__ import annotations

from pathlib import Path

from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.settings.reference import REFERENCE

DOCUMENT = Path(__file__).with_name("settings.md")
BEGIN = "<!-- The table is of docs/make_reference.py: change settings/reference.py instead. -->\n"
END = "<!-- End of the table. -->\n"


def table() -> str:
    """Return the settings as a Markdown table."""
    rows = [
        f"| `{PREFIX}{name}` | {entry.default} | {entry.meaning} |\n"
        for name, entry in REFERENCE.items()
    ]
    return "".join(["| setting | default | meaning |\n", "|---|---|---|\n", *rows])


def with_table(text: str) -> str:
    """Return the document with the table that is true now.

    Raises:
        ValueError: The document does not have the marks.
    """
    before, marked, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not marked or not closed:
        raise ValueError(f"{DOCUMENT.name} must have the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

"""What the commands share."""

from __future__ import annotations

import click

#: Which queues to look at, as a worker's -Q.
queues_option = click.option(
    "-Q", "--queues", metavar="A,B", help="These queues, instead of all that the app consumes from."
)


def split(queues: str | None) -> list[str]:
    """Return the names in a list with commas."""
    return [name.strip() for name in (queues or "").split(",") if name.strip()]

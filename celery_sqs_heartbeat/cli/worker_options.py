"""What the commands share."""

from __future__ import annotations

from typing import Any

import click

#: Which queues to look at, as a worker's -Q.
queues_option = click.option(
    "-Q", "--queues", metavar="A,B", help="These queues, instead of all that the app consumes from."
)


def split(queues: str | None) -> list[str]:
    """Return the names in a list with commas, each once.

    Raises:
        click.BadParameter: One of them is empty.
    """
    if queues is None:
        return []
    # As a worker takes them: with their blanks.
    names = queues.split(",")
    if "" in names:
        raise click.BadParameter(f"{queues!r} has an empty name in it", param_hint="-Q")
    return list(dict.fromkeys(names))


class Concurrency(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """How many tasks a worker runs at a time: a whole number, or "auto" as Celery 5.7 has it."""

    name = "concurrency"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number; None for as many as Celery chooses, as for 0."""
        text = str(value)
        if text.isdecimal():
            return int(text) or None
        if text != "auto":
            self.fail(f"{text!r} must be a whole number, 0 or more, or 'auto'", param, ctx)
        return None

"""Options that the commands share with Celery's worker."""

from __future__ import annotations

from typing import Any

import click

#: Which queues to check, like the worker's option -Q.
queues_option = click.option(
    "-Q",
    "--queues",
    metavar="A,B",
    help="Only these queues, instead of all that the app consumes from.",
)


def split(queues: str | None) -> list[str]:
    """Return the names in a comma-separated list, without duplicates.

    Raises:
        click.BadParameter: One of them is empty.
    """
    if queues is None:
        return []
    # A worker keeps blanks in the names, too.
    names = queues.split(",")
    if "" in names:
        raise click.BadParameter(
            f"{queues!r} has an empty name in it: write names with one comma between them",
            param_hint="-Q",
        )
    return list(dict.fromkeys(names))


#: Digits of the largest concurrency: more than any machine runs.
_MOST_DIGITS = 6


class Concurrency(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """How many tasks a worker runs at a time: a whole number, or Celery 5.7's "auto"."""

    name = "concurrency"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number; None for 0 and "auto", for which Celery chooses."""
        text = str(value)
        # Python refuses to convert very long numbers, with an error of its own.
        if text.isdecimal() and len(text) <= _MOST_DIGITS:
            return int(text) or None
        if text != "auto":
            self.fail(f"{text[:20]!r} must be a whole number, 0 or more, or 'auto'", param, ctx)
        return None

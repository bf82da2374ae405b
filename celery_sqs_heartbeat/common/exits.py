"""The exit statuses of all commands, and the error that ends one of them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: It did what it was asked to, and there is nothing to act on.
DONE = 0
#: It did what it was asked to, and there is something to act on, or nothing to show.
FOUND = 1
#: It could not do what it was asked to. click ends so, too, for options that it refuses.
REFUSED = 2

#: What each status means, for all commands.
STATUSES: Mapping[int, str] = {
    DONE: "done; there is nothing to act on",
    FOUND: "done; there is something to act on, or nothing to show",
    REFUSED: "not done: an option, a path, a setting or an answer does not allow it; "
    "one line on standard error names it and the way out (the doctor lists its findings instead)",
}
#: When a command that ran ends with `FOUND`.
FOUND_WHEN: Mapping[str, str] = {
    "celery_sqs_heartbeat.journal": "the journal has no lines of what is asked for",
    "doctor": "there are warnings, and --strict is given",
    "events": "the journal has no messages of these days",
    "report": "there are no messages of these days",
    "run": "the journal has no messages of these days",
    "status": "a worker does not answer or is not healthy, or leases are not well",
    "tune": "there are no messages yet, or --check finds settings that are worse",
}
#: What a command ends with `REFUSED` for, besides what it is given.
REFUSED_WHEN: Mapping[str, str] = {
    "doctor": "there are errors",
    "status": "no worker answers",
}


def epilog(command: str) -> str:
    """Return the end of a command's help: the exit statuses that are its own."""
    own = ((FOUND, FOUND_WHEN.get(command)), (REFUSED, REFUSED_WHEN.get(command)))
    when_else = ", and ".join(f"with {status} when {when}" for status, when in own if when)
    return f"Exits {when_else}." if when_else else ""


class Refusal(click.ClickException):
    """Ends a command with one line that names what is wrong and the way out."""

    exit_code = REFUSED


class NothingFound(click.ClickException):
    """Ends a command that looked in the right place and found nothing to show."""

    exit_code = FOUND


@contextmanager
def refusing() -> Iterator[None]:
    """End the command with one line where the package raises an error of its own."""
    try:
        yield
    except SqsHeartbeatError as error:
        raise Refusal(str(error)) from None


#: What a device answers that takes no more: full, over its quota or its limit, or broken.
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


@contextmanager
def printing() -> Iterator[None]:
    """End the command with one line where its output can't be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        # What is no file's comes of standard output; click ends quietly where the reader of a
        # pipe has gone.
        if error.filename is not None or error.errno not in _FULL:
            raise
        with suppress(OSError):
            # Python tries once more when it ends, and would report that, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Refusal(f"the output can't be written: {error.strerror}") from None


class Command(click.Command):
    """A command that ends with one line where its output can't be written."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with printing():
            return super().invoke(ctx)

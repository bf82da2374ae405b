"""The exit statuses of all commands, and the errors with which a command exits."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: The command did its work, and nothing needs action.
DONE = 0
#: The command did its work, and something needs action, or there is nothing to show.
FOUND = 1
#: The command could not do its work. click exits with the same status for wrong options.
REFUSED = 2

#: When a command exits with `FOUND`.
FOUND_WHEN: Mapping[str, str] = {
    "celery_sqs_heartbeat.journal": "the journal has no matching lines",
    "doctor": "there are warnings and --strict is set",
    "report": "there are no messages in these days, or a part of the journal can't be read",
    "run": "the journal has no messages in these days, or a part of it can't be read",
    "status": "a worker does not answer or is not healthy, or a lease is lost, expired or not "
    "extended",
    "tune": "there are no messages yet, a part of the journal can't be read, or --check finds "
    "settings that are worse",
}
#: When a command exits with `REFUSED`, apart from wrong options, paths and settings.
REFUSED_WHEN: Mapping[str, str] = {
    "doctor": "there are errors",
    "status": "no worker answers",
}


def epilog(command: str) -> str:
    """Return the end of a command's help: its own exit statuses."""
    own = ((FOUND, FOUND_WHEN.get(command)), (REFUSED, REFUSED_WHEN.get(command)))
    when_else = ", and ".join(f"with {status} when {when}" for status, when in own if when)
    return f"Exits {when_else}." if when_else else ""


class Refusal(click.ClickException):
    """Exits a command with one line that names the fault and the way out."""

    exit_code = REFUSED


class NothingFound(click.ClickException):
    """Exits a command that found nothing to show."""

    exit_code = FOUND


@contextmanager
def refusing() -> Iterator[None]:
    """Exit the command with one line if the package raises one of its errors."""
    try:
        yield
    except SqsHeartbeatError as error:
        raise Refusal(str(error)) from None


#: The errors of a device that accepts no more data: full, over its quota or limit, or broken.
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


@contextmanager
def printing() -> Iterator[None]:
    """Exit the command with one line if its output can't be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        # An error without a file name comes from standard output. click itself exits quietly if
        # the reader of a pipe has gone.
        if error.filename is not None or error.errno not in _FULL:
            raise
        with suppress(OSError):
            # Python writes once more when it exits, and would report that error, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Refusal(f"the output can't be written: {error.strerror}") from None


class Command(click.Command):
    """A command that exits with one line if its output can't be written."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with printing():
            return super().invoke(ctx)

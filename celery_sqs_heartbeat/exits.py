"""The exit statuses of all commands, and the error that ends one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from celery_sqs_heartbeat.errors import SqsHeartbeatError

#: It did what it was asked to, and there is nothing to act on.
DONE = 0
#: It did what it was asked to, and there is something to act on, or nothing to show.
FOUND = 1
#: It could not do what it was asked to. click ends so, too, for options that it refuses.
REFUSED = 2


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

"""The contents of an app for a worker: its queues and tasks, and whether there is an app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def queue_names(app: Any, chosen: Iterable[str] = ()) -> list[str]:
    """Return the names of the queues that a worker of the app consumes from.

    Args:
        chosen: The queues of the option -Q; empty for all of the app's.

    Raises:
        KeyError: The app has no such queue, and Celery may not create it.
    """
    queues = app.amqp.queues
    return [queues[name].name for name in chosen] or list(queues.consume_from)


def is_made_up(app: Any) -> bool:
    """Return whether this is the app that Celery makes if the command line names none."""
    is_default = type(app.loader).__module__ == "celery.loaders.default"
    return bool(is_default and app.main == "default")


def import_tasks(app: Any) -> str | None:
    """Import the app's tasks like a worker. Return why that failed, or None."""
    try:
        app.loader.import_default_modules()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None

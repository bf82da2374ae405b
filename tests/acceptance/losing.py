"""Workers that lose their broker connection, or their threads, when a test requests it.

kombu treats a poll that fails as an empty answer. In practice, a worker on SQS loses its
connection when it can't get credentials or a queue URL for a moment: a botocore error on
the event loop.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from botocore.exceptions import EndpointConnectionError
from celery import bootsteps


class LosesConnection(bootsteps.StartStopStep):
    """Raises a connection error on the event loop when the file in PROJ_BREAK exists."""

    requires = {"celery.worker.consumer.tasks:Tasks"}  # noqa: RUF012

    def start(self, c: Any) -> None:
        self._file = Path(os.environ["PROJ_BREAK"])

    def register_with_event_loop(self, c: Any, hub: Any) -> None:
        hub.call_repeatedly(0.05, self._look)

    def _look(self) -> None:
        if self._file.exists():
            self._file.unlink()
            raise EndpointConnectionError(endpoint_url="lost on purpose")


def lose_threads(pool: Any, *, after: int) -> None:
    """Break a pool of threads as a limit of the system does.

    Args:
        after: How many tasks it still takes.
    """
    start, left = pool.executor.submit, iter(range(after))

    def submit(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        return start(*args, **kwargs)

    pool.executor.submit = submit

"""A worker's step that makes a prefork pool forget its jobs when a test requests it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import bootsteps

from tests.support.insides import forget_jobs


class ForgetsJobs(bootsteps.StartStopStep):
    """Drops the results of all jobs when the file in PROJ_FORGET exists. The tasks continue."""

    requires = {"celery.worker.consumer.tasks:Tasks"}  # noqa: RUF012

    def start(self, c: Any) -> None:
        self._file = Path(os.environ["PROJ_FORGET"])
        self._pool = c.pool

    def register_with_event_loop(self, c: Any, hub: Any) -> None:
        hub.call_repeatedly(0.05, self._look)

    def _look(self) -> None:
        if self._file.exists():
            self._file.unlink()
            forget_jobs(self._pool)

"""Shows the progress of the work: live on a terminal, elsewhere as lines."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from celery_sqs_heartbeat.common.escaping import counted
from demo.ledger import Execution, after_a_kill, duplicates, succeeded
from demo.phase import TASKS, Watcher

#: How often a line is printed if the current step does not change, in seconds.
QUIET_SECONDS = 5.0


class Display:
    """One row for each kind of worker, during a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._rows = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("done, {task.fields[counts]}"),
            TextColumn("{task.fields[seconds]:.0f} s", style="cyan"),
            TextColumn("{task.fields[doing]}", style="dim"),
            console=console,
            disable=not self._is_live,
        )

    def __enter__(self) -> Display:
        self._rows.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.stop()

    def row(self, title: str) -> Watcher:
        """Add a row, and return the function that updates it."""
        row = self._rows.add_task(title, total=len(TASKS), counts="", seconds=0.0, doing="")
        began_at = time.monotonic()
        lines = _Lines(self._console, title)

        def update(runs: Sequence[Execution], doing: str) -> None:
            done, twice = len(succeeded(runs)), len(duplicates(runs))
            is_avoidable = twice > len(after_a_kill(runs))
            counts = f"{len(runs)} started, {counted(twice, 'duplicate')}"
            seconds = time.monotonic() - began_at
            if self._is_live:
                self._update(
                    row, done, f"[red]{counts}" if is_avoidable else counts, seconds, doing
                )
            else:
                lines.update(f"{done}/{len(TASKS)} done, {counts}", seconds, doing)

        return update

    def _update(self, row: TaskID, done: int, counts: str, seconds: float, doing: str) -> None:
        self._rows.update(row, completed=done, counts=counts, seconds=seconds, doing=doing)


class _Lines:
    """Prints a line when the current step changes, and every few seconds."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._doing = ""
        self._next_at = 0.0

    def update(self, counts: str, seconds: float, doing: str) -> None:
        """Print the state, unless the same step was printed a short while ago."""
        if doing == self._doing and seconds < self._next_at:
            return
        self._doing, self._next_at = doing, seconds + QUIET_SECONDS
        self._console.print(f"{self._title}: {seconds:3.0f} s, {counts}, {doing}", markup=False)

"""Reads from the ledger which tasks ran, how often and when.

All functions are pure: lines in, values out. Times are wall clock seconds of one machine.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean


class Event(str, enum.Enum):
    """What a line of the ledger records."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: A worker was killed, with all processes of its group.
    KILLED = "killed"


@dataclass(kw_only=True)
class Execution:
    """One run of a task. A task that is delivered twice has two.

    Attributes:
        group: The process group of its worker.
        end: How it ended. None while it runs, and if the demo ended first.
    """

    task: str
    group: int
    started_at: float
    ended_at: float = float("inf")
    end: Event | None = None


def executions(lines: Iterable[str]) -> list[Execution]:
    """Return all executions, earliest first.

    Args:
        lines: JSON objects. A line without a line feed is still being written, and is ignored.
    """
    runs: dict[str, Execution] = {}
    for line in lines:
        if not line.endswith("\n"):
            continue
        note = json.loads(line)
        event = Event(note["event"])
        if event is Event.STARTED:
            runs[note["run"]] = Execution(
                task=note["task"], group=note["group"], started_at=note["at"]
            )
        elif event is Event.KILLED:
            for run in runs.values():
                if run.group == note["group"] and run.end is None:
                    run.ended_at, run.end = note["at"], event
        else:
            run = runs[note["run"]]
            run.ended_at, run.end = note["at"], event
    return sorted(runs.values(), key=lambda run: run.started_at)


def succeeded(runs: Iterable[Execution]) -> set[str]:
    """Return the tasks that succeeded at least once."""
    return {run.task for run in runs if run.end is Event.SUCCEEDED}


def duplicates(runs: Sequence[Execution]) -> list[Execution]:
    """Return the executions that began although the one before had not failed.

    docs/pipeline.md defines duplicates like this. An execution after a kill is a duplicate, too,
    because no one knows whether the killed execution had an effect.
    """
    return [
        run
        for before, run in _repeated(runs)
        if not (before.end is Event.FAILED and before.ended_at <= run.started_at)
    ]


def after_a_kill(runs: Sequence[Execution]) -> list[Execution]:
    """Return the unavoidable duplicates: the worker of the execution before was killed."""
    return [
        run
        for before, run in _repeated(runs)
        if before.end is Event.KILLED and before.ended_at <= run.started_at
    ]


def _repeated(runs: Sequence[Execution]) -> list[tuple[Execution, Execution]]:
    """Return pairs of consecutive executions of a task."""
    pairs, last = [], dict[str, Execution]()
    for run in sorted(runs, key=lambda each: each.started_at):
        if run.task in last:
            pairs.append((last[run.task], run))
        last[run.task] = run
    return pairs


def mean_delay(runs: Sequence[Execution], end: Event) -> float | None:
    """Return the mean time from an end of that kind to the task's next start, in seconds.

    None if no execution ended like this, or if none of these was followed by another.
    """
    delays = [
        min(later)
        for run in runs
        if run.end is end
        and (
            later := [
                other.started_at - run.ended_at
                for other in runs
                if other.task == run.task and other.started_at >= run.ended_at
            ]
        )
    ]
    return fmean(delays) if delays else None

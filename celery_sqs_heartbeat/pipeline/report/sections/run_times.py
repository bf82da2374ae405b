"""The section of the report on durations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label, Plot
from celery_sqs_heartbeat.pipeline.report.figures import at_most, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import PARTS, Rows
from celery_sqs_heartbeat.pipeline.schema import RATIO
from celery_sqs_heartbeat.pipeline.tables.quantiles import name_of

#: Bins of a histogram that are drawn as one bar. Each bar is a sixth wider than the one before.
_BINS_PER_BAR = 8
_BAR = math.log(RATIO) * _BINS_PER_BAR
_SECOND = 1_000_000
_MEASURES = (("run", "run time"), ("wait", "wait before the run"))
#: Runs shorter than a millisecond are drawn as one bar: more detail helps no one.
_FLOOR = math.floor(math.log(1000) / _BAR)
#: Ticks that people know, in seconds: from few to many, for pictures with more room.
TICKS = (
    (0.001, 0.1, 10, 600, 36_000),
    (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000),
    (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10_800, 43_200, 172_800),
    (0.001, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 43_200),
    (0.001, 0.1, *range(1, 11), 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 150, 180, 240, 300),
)
_MOST_TICKS = 7
#: Least distance of two ticks, as a part of the width. On a phone, their text needs it.
_TICKS_APART = 0.09


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """How long one task ran."""

    name: str
    histogram: Plot
    notes: Sequence[str]
    quantiles: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The section's content: the tasks that took the most time."""

    tasks: Sequence[TaskTimes]


def run_times(found: Findings) -> RunTimes | str:
    """Return each task's run times, compared with the visibility timeout."""
    if not found.tasks:
        return "No task was run, so there are no durations."
    return RunTimes(tasks=[_task(task, found) for task in found.tasks])


def _task(task: Mapping[str, Any], found: Findings) -> TaskTimes:
    def mine(rows: Rows) -> Rows:
        key = (task["queue"], task["task"])
        return [row for row in rows if (row["queue"], row["task"]) == key]

    tails = sorted(mine(found.tails), key=lambda row: int(row["vt"]))
    notes = [
        f"{row['share']:.1%} took longer than a visibility timeout of {row['vt']} s."
        for row in tails
    ]
    if task["censored"]:
        notes.append(
            f"{count(task['censored'], 'run')} without an end: still running, or interrupted."
        )
    name = f"{text(task['task'])} on {text(task['queue'])}"
    return TaskTimes(
        name=name,
        histogram=_histogram(name, mine(found.bins), [row["vt"] for row in tails]),
        notes=notes,
        quantiles=_quantiles(name, mine(found.quantiles)),
    )


def _quantiles(name: str, rows: Rows) -> Listing:
    of_measure = {row["measure"]: row for row in rows}
    return listing(
        f"Quantiles of {name}",
        ("", "durations", *(f"p{part * 100:g}" for part in PARTS)),
        [
            (
                measure,
                number(of_measure[key]["spans"] + of_measure[key]["censored"]),
                *(at_most(of_measure[key][name_of(part)]) for part in PARTS),
            )
            for key, measure in _MEASURES
            if key in of_measure
        ],
        numbers=len(PARTS) + 1,
    )


def _histogram(name: str, bins: Rows, vts: Sequence[int]) -> Plot:
    heights: dict[int, int] = {}
    for row in bins:
        at = max(_FLOOR, row["bin"] // _BINS_PER_BAR)
        heights[at] = heights.get(at, 0) + row["runs"]
    limits = [math.log(vt * _SECOND) / _BAR for vt in vts]
    low = math.floor(min([*heights, *limits])) - 1
    width = math.ceil(max([*(at + 1 for at in heights), *limits])) + 1 - low
    most = max(heights.values())

    def place(microseconds: float) -> float:
        return (math.log(microseconds) / _BAR - low) / width

    bars = [
        charts.bar(
            (at - low) / width,
            1 / width,
            runs / most,
            title=f"{_range(at)}: {count(runs, 'run')}",
        )
        for at, runs in sorted(heights.items())
    ]
    limit_lines = [
        charts.upright(place(vt * _SECOND), title=f"visibility timeout {vt} s", kind="limit")
        for vt in vts
    ]
    in_sight = [[each for each in ticks if 0 <= place(each * _SECOND) <= 1] for ticks in TICKS]
    shown = max((ticks for ticks in in_sight if _is_legible(ticks, width)), key=len, default=[])
    return Plot(
        label=f"Run times of {name}",
        bars=bars,
        strokes=limit_lines,
        across=[Label(place(each * _SECOND), span(each * _SECOND)) for each in shown],
        up=[Label(0, "0"), Label(1, number(most))],
    )


def _is_legible(ticks: Sequence[float], width: int) -> bool:
    apart = (math.log(more / less) / _BAR / width for less, more in pairwise(ticks))
    return len(ticks) <= _MOST_TICKS and all(each >= _TICKS_APART for each in apart)


def _range(at: int) -> str:
    begin, end = (math.exp(each * _BAR) for each in (at, at + 1))
    return f"up to {span(end)}" if at == _FLOOR else f"{span(begin)} to {span(end)}"

"""The section of the report on durations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    at_most,
    join,
    note,
    number,
    plural,
    span,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import PARTS, Rows
from celery_sqs_heartbeat.pipeline.schema import RATIO
from celery_sqs_heartbeat.pipeline.tables.quantiles import name_of

#: Bins of a histogram that are drawn as one bar: each is then a sixth wider than the last.
_BINS_PER_BAR = 8
_BAR = math.log(RATIO) * _BINS_PER_BAR
_SECOND = 1_000_000
_MEASURES = (("run", "run time"), ("wait", "wait before it"))
#: What is shorter than a millisecond is drawn as one bar: it is no longer to anybody.
_FLOOR = math.floor(math.log(1000) / _BAR)
#: Seconds that people know, the fewest first; finer ones where a picture has room for them.
TICKS = (
    (0.001, 0.1, 10, 600, 36_000),
    (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000),
    (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10_800, 43_200, 172_800),
    (0.001, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 43_200),
    (0.001, 0.1, *range(1, 11), 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 150, 180, 240, 300),
)
_MOST_TICKS = 7
#: Least distance of two of them, as a part of the width: on a telephone their text needs it.
_TICKS_APART = 0.09


def durations(found: Findings) -> Html:
    """Return each task's run times against the visibility timeout."""
    if not found.tasks:
        return note("No task was run: there are no durations.")
    words = (
        "How long tasks ran, on a logarithmic scale, and the visibility timeout that their "
        "messages were received with (dashed). What is right of it lived by extensions. Shown "
        "are the tasks that took the most time. Of a p90 of 2 s, 90% took 2 s or less: spans are "
        "counted in bins that are 2% wide, and a bin's upper edge is given."
    )
    return join((note(words), *(_task(task, found) for task in found.tasks)))


def _task(task: Mapping[str, Any], found: Findings) -> Html:
    def mine(rows: Rows) -> Rows:
        key = (task["queue"], task["task"])
        return [row for row in rows if (row["queue"], row["task"]) == key]

    bins = mine(found.bins)
    tails = sorted(mine(found.tails), key=lambda row: int(row["vt"]))
    quantiles = {row["measure"]: row for row in mine(found.quantiles)}
    notes = [f"{row['share']:.1%} outlived a visibility timeout of {row['vt']} s." for row in tails]
    if task["censored"]:
        notes.append(
            f"{plural(task['censored'], 'run')} without an end: still going on, or cut off."
        )
    name = f"{text(task['task'])} on {text(task['queue'])}"
    listed = table(
        f"Quantiles of {name}",
        ("", "spans", *(f"p{part * 100:g}" for part in PARTS)),
        [
            (
                measure,
                number(quantiles[key]["spans"] + quantiles[key]["censored"]),
                *(at_most(quantiles[key][name_of(part)]) for part in PARTS),
            )
            for key, measure in _MEASURES
            if key in quantiles
        ],
        numbers=len(PARTS) + 1,
    )
    picture = _histogram(name, bins, [row["vt"] for row in tails])
    return join((f"<h3>{name}</h3>", picture, note(" ".join(notes)), listed))


def _histogram(name: str, bins: Rows, vts: Sequence[int]) -> Html:
    bars: dict[int, int] = {}
    for row in bins:
        at = max(_FLOOR, row["bin"] // _BINS_PER_BAR)
        bars[at] = bars.get(at, 0) + row["runs"]
    limits = [math.log(vt * _SECOND) / _BAR for vt in vts]
    low = math.floor(min([*bars, *limits])) - 1
    width = math.ceil(max([*(at + 1 for at in bars), *limits])) + 1 - low
    most = max(bars.values())

    def place(microseconds: float) -> float:
        return (math.log(microseconds) / _BAR - low) / width

    shapes = [
        charts.bar(
            (at - low) / width,
            1 / width,
            count / most,
            title=f"{_range(at)}: {plural(count, 'run')}",
        )
        for at, count in sorted(bars.items())
    ]
    shapes += [
        charts.upright(place(vt * _SECOND), title=f"visibility timeout {vt} s", kind="limit")
        for vt in vts
    ]
    in_sight = [[each for each in ticks if 0 <= place(each * _SECOND) <= 1] for ticks in TICKS]
    shown = max((ticks for ticks in in_sight if _is_legible(ticks, width)), key=len, default=[])
    return charts.plot(
        f"Run times of {name}",
        shapes,
        across=[Label(place(each * _SECOND), span(each * _SECOND)) for each in shown],
        up=[Label(0, Html("0")), Label(1, number(most))],
    )


def _is_legible(ticks: Sequence[float], width: int) -> bool:
    apart = (math.log(more / less) / _BAR / width for less, more in pairwise(ticks))
    return len(ticks) <= _MOST_TICKS and all(each >= _TICKS_APART for each in apart)


def _range(at: int) -> str:
    begin, end = (math.exp(each * _BAR) for each in (at, at + 1))
    return f"up to {span(end)}" if at == _FLOOR else f"{span(begin)} to {span(end)}"

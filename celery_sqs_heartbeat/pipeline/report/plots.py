"""The report's pictures: run times, messages in flight, and the trade-off of settings.

A plot's SVG is stretched to the page's width. Its text is beside it in HTML, so it keeps its size
on a phone. Dots are lines of zero length with round ends, which stay round when stretched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from celery_sqs_heartbeat.pipeline.advice import RECOMMENDED, RUNNING
from celery_sqs_heartbeat.pipeline.phrases import count, moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.queries import MINUTE_US, QUEUES, Rows
from celery_sqs_heartbeat.pipeline.schema import RATIO
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram, bin_of

Row = Mapping[str, Any]
Point = tuple[float, float]
#: Text at an axis, and its place: 0 to 1 from the left or from the bottom.
Label = tuple[float, str]

#: Width and height of an SVG in its own units. Both are stretched independently.
SIZE = 1000.0
_SECOND = 1_000_000
#: Quantiles that are shown.
_PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
#: Bins of a histogram that are drawn as one bar. Each bar is a sixth wider than the one before.
_BINS_PER_BAR = 8
_BAR = math.log(RATIO) * _BINS_PER_BAR
_MEASURES = {"run": "run time", "wait": "wait before the run"}
#: Runs shorter than a millisecond are drawn as one bar: more detail helps no one.
_FLOOR = math.floor(math.log(1000) / _BAR)
#: Ticks that people know, in seconds: from few to many, for pictures with more room.
_TICKS = (
    (0.001, 0.1, 10, 600, 36_000),
    (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000),
    (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10_800, 43_200, 172_800),
    (0.001, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 43_200),
    (0.001, 0.1, *range(1, 11), 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 150, 180, 240, 300),
)
_MOST_TICKS = 7
#: Least distance of two ticks, as a part of the width. On a phone, their text needs it.
_TICKS_APART = 0.09
_KINDS = {RECOMMENDED: "best", RUNNING: "used"}
_LABELS = {RECOMMENDED: "recommended", RUNNING: "in use"}


class Stroke:
    """A line, an area, a bar or a dot, through points that are 0 to 1 across and up.

    Attributes:
        kind: Its classes in the style sheet.
        path: An SVG path.
    """

    def __init__(self, kind: str, points: Sequence[Point], title: str) -> None:
        self.kind = kind
        self.title = title
        path = "L".join(f"{x * SIZE:.1f} {(1 - y) * SIZE:.1f}" for x, y in points)
        self.path = f"M{path}" + {"bar": "Z", "area": "Z", "dot": "h0"}.get(kind.split()[0], "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with axes.

    Attributes:
        label: Describes the picture for people who can't see it.
        strokes: Drawn in order, the last on top.
    """

    label: str
    across: Sequence[Label]
    up: Sequence[Label]
    strokes: Sequence[Stroke]


def durations_of(found: Rows) -> Iterator[Row]:
    """Yield each task's run times, compared with the visibility timeout."""
    for (task, queue), group in groupby(found, key=lambda row: (row["task"], row["queue"])):
        name, rows = f"{text(task)} on {text(queue)}", list(group)
        runs = [row for row in rows if row["measure"] == "run"]
        timeouts = sorted({row["vt"] for row in runs if row["vt"] is not None})
        histograms = {title: _histogram(rows, measure) for measure, title in _MEASURES.items()}
        yield {
            "name": name,
            "plot": _run_times(name, runs, timeouts),
            "beyond": [(timeout, _share_beyond(timeout, runs)) for timeout in timeouts],
            "unfinished": sum(row["censored"] for row in runs),
            "quantiles": [
                {
                    "title": title,
                    "durations": histogram.count,
                    **{each: histogram.quantile(part) for each, part in _PARTS.items()},
                }
                for title, histogram in histograms.items()
                if histogram.count
            ],
        }


def _histogram(rows: Rows, measure: str) -> Histogram:
    spans, unfinished = Counter[int](), Counter[int]()
    for row in rows:
        if row["measure"] == measure:
            spans[row["bin"]] += row["spans"]
            unfinished[row["bin"]] += row["censored"]
    return Histogram(+spans, +unfinished)


def _share_beyond(timeout: int, runs: Rows) -> float:
    """Return the share of a timeout's runs in later bins than its own: more than 2 % longer."""
    limit, numbers = bin_of(timeout * _SECOND), Counter[bool]()
    for row in runs:
        if row["vt"] == timeout:
            numbers[row["bin"] > limit] += row["spans"] + row["censored"]
    return numbers[True] / numbers.total()


def _run_times(name: str, runs: Rows, timeouts: Sequence[int]) -> Plot:
    heights = Counter[int]()
    for row in runs:
        at = max(_FLOOR, row["bin"] // _BINS_PER_BAR)
        heights[at] += row["spans"] + row["censored"]
    limits = [math.log(timeout * _SECOND) / _BAR for timeout in timeouts]
    low = math.floor(min([*heights, *limits])) - 1
    width = math.ceil(max([*(at + 1 for at in heights), *limits])) + 1 - low
    most = max(heights.values())

    def place(seconds: float) -> float:
        return (math.log(seconds * _SECOND) / _BAR - low) / width

    strokes = []
    for at, number_of in sorted(heights.items()):
        left, right, height = (at - low) / width, (at - low) / width + 1 / width, number_of / most
        corners = [(left, 0.0), (left, height), (right, height), (right, 0.0)]
        strokes.append(
            Stroke("bar first", corners, f"{_range(at)}: {count(number_of, 'run')}"),
        )
    for timeout in timeouts:
        ends = [(place(timeout), 0.0), (place(timeout), 1.0)]
        strokes.append(Stroke("line limit", ends, f"visibility timeout {timeout} s"))
    in_sight = [[each for each in ticks if 0 <= place(each) <= 1] for ticks in _TICKS]
    shown = max((ticks for ticks in in_sight if _is_legible(ticks, width)), key=len, default=[])
    return Plot(
        label=f"Run times of {name}",
        strokes=strokes,
        across=[(place(each), span(each * _SECOND)) for each in shown],
        up=[(0, "0"), (1, number(most))],
    )


def _is_legible(ticks: Sequence[float], width: int) -> bool:
    apart = (math.log(more / less) / _BAR / width for less, more in pairwise(ticks))
    return len(ticks) <= _MOST_TICKS and all(each >= _TICKS_APART for each in apart)


def _range(at: int) -> str:
    begin, end = (math.exp(each * _BAR) for each in (at, at + 1))
    return f"up to {span(end)}" if at == _FLOOR else f"{span(begin)} to {span(end)}"


def in_flight_of(found: Rows) -> Iterator[Row]:
    """Yield the messages in flight over time, by queue."""
    for queue, group in groupby(found, key=lambda row: row["queue"]):
        rows = list(group)
        highest = _highest(max(rows, key=lambda row: row["peak"]))
        plot = _over_time(f"Messages in flight of {text(queue)}: {highest}", rows)
        step_us = rows[0]["step_us"]
        yield {
            "name": text(queue),
            "plot": plot,
            "highest": highest,
            "step_us": step_us,
            "rows": rows,
        }


def _over_time(label: str, rows: Rows) -> Plot:
    step = rows[0]["step_us"]
    begin, end = rows[0]["at"], rows[-1]["at"] + step
    peak = max(row["peak"] for row in rows)
    slots = max((row["slots"] or 0 for row in rows), default=0)
    # Far more slots are shown in words only: drawn, they would flatten the curves.
    top = max(peak, slots if slots <= 3 * peak else 0, 1)

    def steps(values: Mapping[int, float]) -> list[Point]:
        points: list[Point] = []
        for at in range(begin, end, step):
            value = values.get(at, 0) / top
            points += [((each - begin) / (end - begin), value) for each in (at, at + step)]
        return points

    peaks, means = ({row["at"]: row[each] for row in rows} for each in ("peak", "mean"))
    under = [(0.0, 0.0), *steps(peaks), (1.0, 0.0)]
    strokes = [
        Stroke("area peak", under, f"peak: {number(peak)} at most"),
        Stroke("line mean", steps(means), "mean"),
    ]
    if slots and slots <= top:
        limits = steps(_filled({row["at"]: row["slots"] for row in rows}, begin, end, step))
        strokes.append(Stroke("line limit", limits, f"{count(slots, 'slot')} at most"))
    shares = (0.0, 0.5, 1.0) if end - begin > step else (0.0, 1.0)
    return Plot(
        label=label,
        strokes=strokes,
        across=[(at, moment(begin + at * (end - begin))[5:16]) for at in shares],
        up=[(0, "0"), (1, number(top))],
    )


def _highest(row: Row) -> str:
    """Return when the most messages were in flight, and how many slots there were then."""
    peak, slots, step = row["peak"], row["slots"], row["step_us"]
    when = "minute" if step == MINUTE_US else span(step)
    share = row["quota_share"] or 0
    quota = "less than 0.01%" if share < 0.0001 else f"{share:.2%}"
    return (
        f"At most {number(peak)} at once, in the {when} that began at {moment(row['at'])[:16]} "
        f"UTC: {quota} of SQS's quota"
        + (f", {peak / slots:.1f} for each of {count(slots, 'slot')}." if slots else ".")
    )


def _filled(known: Mapping[int, int | None], begin: int, end: int, step: int) -> dict[int, float]:
    """Return the slots of each step. Without a row, it has those of the step before."""
    values: dict[int, float] = {}
    last = next((each for each in known.values() if each), 0)
    for at in range(begin, end, step):
        last = known.get(at) or last
        values[at] = last
    return values


def advice_of(found: Rows) -> Iterator[Row]:
    """Yield the recommended settings, each with its trade-off."""
    ordered = sorted(
        found, key=lambda row: (-row["messages"], row["queue"] or "", row["task"] or "")
    )
    groups = groupby(ordered, key=lambda row: (row["queue"], row["task"]))
    targets = [(queue, task, list(rows)) for (queue, task), rows in groups]
    for queue, task, rows in targets[:QUEUES]:
        name = text(queue) if task is None else f"{task} on {text(queue)}"
        best = next((row for row in rows if row["rank"] == RECOMMENDED), rows[0])
        used = next((row for row in rows if row["rank"] == RUNNING), None)
        verb = "Set" if used is None else "Keep" if _terms(used) == _terms(best) else "Change to"
        plot = _trade_off(name, rows)
        yield {"name": name, "verb": verb, "best": best, "plot": plot, "rows": list(_merged(rows))}


def _terms(row: Row) -> tuple[int, float]:
    return row["visibility_timeout"], row["threshold"]


def _merged(rows: Rows) -> Iterator[Row]:
    """Yield one row for the same settings with all their labels, fewest calls first."""
    ordered = sorted(rows, key=lambda row: (row["calls_per_1000"], *_terms(row), row["rank"]))
    for _, same in groupby(ordered, key=_terms):
        alike = sorted(same, key=lambda row: (row["rank"] not in _LABELS, -row["rank"]))
        labels = [_LABELS[row["rank"]] for row in alike if row["rank"] in _LABELS]
        yield {**alike[0], "labels": labels}


def _trade_off(name: str, rows: Rows) -> Plot:
    calls = max(row["calls_per_1000"] for row in rows) or 1
    slowest = max(row["recovery_s"] for row in rows) or 1

    def place(row: Row) -> Point:
        return 0.02 + 0.95 * row["calls_per_1000"] / calls, 0.95 * row["recovery_s"] / slowest

    others = sorted((r for r in rows if r["rank"] > RECOMMENDED), key=lambda r: r["calls_per_1000"])
    curve = [place(row) for row in others]
    strokes = [Stroke("line mean", curve, "trade-off")] if len(curve) > 1 else []
    # The two important dots are drawn last, on top: the recommended one within the one in use.
    marked = sorted((row for row in rows if row["rank"] in _KINDS), key=lambda row: row["rank"])
    for row in (*others, *marked):
        title = (
            f"timeout {row['visibility_timeout']} s: {number(row['calls_per_1000'])} calls for "
            f"1,000 attempts, recovery in {span(row['recovery_s'] * _SECOND)}"
        )
        kind = _KINDS.get(row["rank"], "other")
        strokes.append(Stroke(f"dot {kind}", [place(row)], title))
    return Plot(
        label=f"Trade-off of {name}: recovery over calls for 1,000 attempts",
        strokes=strokes,
        across=[(0.02, "0 calls for 1,000"), (0.97, number(calls))],
        up=[(0, "0"), (0.95, span(slowest * _SECOND))],
    )

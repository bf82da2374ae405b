"""The sections of the report that draw: durations, messages in flight, and recommended settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from celery_sqs_heartbeat.pipeline.advice import RECOMMENDED, RUNNING
from celery_sqs_heartbeat.pipeline.phrases import at_most, count, glued
from celery_sqs_heartbeat.pipeline.report import blocks, words
from celery_sqs_heartbeat.pipeline.report.blocks import (
    DASH,
    Block,
    Column,
    Heading,
    Label,
    Legend,
    Plot,
    Point,
    Row,
    Table,
    Text,
    column,
    moment,
    number,
    span,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import MINUTE_US, QUEUES, Found, Rows
from celery_sqs_heartbeat.pipeline.schema import RATIO
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram, bin_of

_SECOND = 1_000_000
#: Quantiles that are shown.
_PARTS = (0.5, 0.9, 0.99, 0.999)
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


def durations(found: Found) -> Iterator[Block]:
    """Yield each task's run times, compared with the visibility timeout."""
    if not found["durations"]:
        yield Text("No task was run, so there are no durations.")
        return
    yield Text(words.ABOUT_DURATIONS)
    for (task, queue), rows in groupby(
        found["durations"], key=lambda row: (row["task"], row["queue"])
    ):
        yield from _task(f"{text(task)} on {text(queue)}", list(rows))


def _task(name: str, rows: Rows) -> Iterator[Block]:
    runs = [row for row in rows if row["measure"] == "run"]
    timeouts = sorted({row["vt"] for row in runs if row["vt"] is not None})
    yield Heading(name)
    yield _run_times(name, runs, timeouts)
    notes = [
        f"{_share_beyond(timeout, runs):.1%} took longer than a visibility timeout of {timeout} s."
        for timeout in timeouts
    ]
    if censored := sum(row["censored"] for row in runs):
        notes.append(f"{count(censored, 'run')} without an end: still running, or interrupted.")
    yield Text(" ".join(notes))
    quantiles = []
    for measure, title in _MEASURES.items():
        spans, unfinished = Counter[int](), Counter[int]()
        for row in rows:
            if row["measure"] == measure:
                spans[row["bin"]] += row["spans"]
                unfinished[row["bin"]] += row["censored"]
        if spans:
            histogram = Histogram(+spans, +unfinished)
            quantiles.append({"title": title, "histogram": histogram})
    yield Table(
        caption=f"Quantiles of {name}",
        columns=(
            column("", "title"),
            Column("durations", lambda row: number(row["histogram"].count), is_number=True),
            *map(_quantile, _PARTS),
        ),
        rows=quantiles,
    )


def _quantile(part: float) -> Column:
    def cell(row: Row) -> str:
        quantile = row["histogram"].quantile(part)
        return DASH if quantile is None else at_most(quantile)

    return Column(f"p{part * 100:g}", cell, is_number=True)


def _share_beyond(timeout: int, runs: Rows) -> float:
    """Return the share of a timeout's runs in later bins than its own: more than 2 % longer."""
    limit, longer, every = bin_of(timeout * _SECOND), 0, 0
    for row in runs:
        if row["vt"] == timeout:
            number_of = row["spans"] + row["censored"]
            every += number_of
            longer += number_of if row["bin"] > limit else 0
    return longer / every


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

    bars = [
        blocks.bar(
            (at - low) / width,
            1 / width,
            runs / most,
            title=f"{_range(at)}: {count(runs, 'run')}",
        )
        for at, runs in sorted(heights.items())
    ]
    limit_lines = [
        blocks.line(
            [(place(timeout), 0.0), (place(timeout), 1.0)],
            title=f"visibility timeout {timeout} s",
            kind="limit",
        )
        for timeout in timeouts
    ]
    in_sight = [[each for each in ticks if 0 <= place(each) <= 1] for ticks in _TICKS]
    shown = max((ticks for ticks in in_sight if _is_legible(ticks, width)), key=len, default=[])
    return Plot(
        label=f"Run times of {name}",
        strokes=[*bars, *limit_lines],
        across=[Label(place(each), span(each * _SECOND)) for each in shown],
        up=[Label(0, "0"), Label(1, number(most))],
    )


def _is_legible(ticks: Sequence[float], width: int) -> bool:
    apart = (math.log(more / less) / _BAR / width for less, more in pairwise(ticks))
    return len(ticks) <= _MOST_TICKS and all(each >= _TICKS_APART for each in apart)


def _range(at: int) -> str:
    begin, end = (math.exp(each * _BAR) for each in (at, at + 1))
    return f"up to {span(end)}" if at == _FLOOR else f"{span(begin)} to {span(end)}"


def in_flight(found: Found) -> Iterator[Block]:
    """Yield the messages in flight over time, by queue."""
    if not found["in_flight"]:
        yield Text("No message was in flight.")
        return
    yield Text(words.ABOUT_IN_FLIGHT)
    yield Legend([("peak", "peak"), ("mean", "mean"), ("limit", "slots")])
    for queue, rows in groupby(found["in_flight"], key=lambda row: row["queue"]):
        yield from _queue(text(queue), list(rows))


def _queue(name: str, rows: Rows) -> Iterator[Block]:
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
    strokes = [
        blocks.area(steps(peaks), title=f"peak: {number(peak)} at most", kind="peak"),
        blocks.line(steps(means), title="mean", kind="mean"),
    ]
    if slots and slots <= top:
        limits = steps(_filled({row["at"]: row["slots"] for row in rows}, begin, end, step))
        strokes.append(blocks.line(limits, title=f"{count(slots, 'slot')} at most", kind="limit"))
    highest = _highest(max(rows, key=lambda row: row["peak"]))
    shares = (0.0, 0.5, 1.0) if end - begin > step else (0.0, 1.0)
    yield Heading(name)
    yield Plot(
        label=f"Messages in flight of {name}: {highest}",
        strokes=strokes,
        across=[Label(at, moment(begin + at * (end - begin))[5:16]) for at in shares],
        up=[Label(0, "0"), Label(1, number(top))],
    )
    yield Text(highest)
    yield Table(
        caption=f"In flight of {name}, by {span(step)}",
        columns=(
            column("from (UTC)", "at", moment),
            *(column(each, show=number) for each in ("peak", "mean", "slots")),
        ),
        rows=rows,
        summary="As a table",
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


def advice(found: Found) -> Iterator[Block]:
    """Yield the recommended settings, each with its trade-off."""
    if not found["recommendations"]:
        yield Text("There is too little data on these days to recommend settings.")
        return
    yield Text(words.ABOUT_ADVICE)
    ordered = sorted(
        found["recommendations"],
        key=lambda row: (-row["messages"], row["queue"] or "", row["task"] or ""),
    )
    groups = groupby(ordered, key=lambda row: (row["queue"], row["task"]))
    targets = [(queue, task, list(rows)) for (queue, task), rows in groups]
    for queue, task, rows in targets[:QUEUES]:
        yield from _target(text(queue) if task is None else f"{task} on {text(queue)}", rows)


def _target(name: str, rows: Rows) -> Iterator[Block]:
    best = next((row for row in rows if row["rank"] == RECOMMENDED), rows[0])
    used = next((row for row in rows if row["rank"] == RUNNING), None)
    verb = "Set" if used is None else "Keep" if _terms(used) == _terms(best) else "Change to"
    yield Heading(name)
    yield Text(
        f", with interval {number(best['interval'])} s and max lease "
        f"{span(best['max_lease'] * _SECOND)}. {glued(text(best['reason']))}",
        lead=f"{verb} visibility timeout {best['visibility_timeout']} s and threshold "
        f"{number(best['threshold'])} s",
        is_quiet=False,
    )
    yield Legend(
        [("round best", "recommended"), ("round used", "in use"), ("round other", "alternatives")]
    )
    yield _trade_off(name, rows)
    yield Table(
        caption=f"Settings for {name}",
        columns=(
            Column("", lambda row: row["labels"], "labels"),
            column("timeout", "visibility_timeout", _in_seconds),
            column("threshold", show=_in_seconds),
            column("interval", show=_in_seconds),
            column("calls for 1,000", "calls_per_1000", number),
            Column("recovery", lambda row: span(row["recovery_s"] * _SECOND), is_number=True),
        ),
        rows=list(_merged(rows)),
        summary="The settings as a table",
    )


def _in_seconds(value: float) -> str:
    return f"{number(value)} s"


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
    strokes = [blocks.line(curve, title="trade-off", kind="mean")] if len(curve) > 1 else []
    # The two important dots are drawn last, on top: the recommended one within the one in use.
    marked = sorted((row for row in rows if row["rank"] in _KINDS), key=lambda row: row["rank"])
    for row in (*others, *marked):
        title = (
            f"timeout {row['visibility_timeout']} s: {number(row['calls_per_1000'])} calls for "
            f"1,000 attempts, recovery in {span(row['recovery_s'] * _SECOND)}"
        )
        strokes.append(blocks.dot(*place(row), title=title, kind=_KINDS.get(row["rank"], "other")))
    return Plot(
        label=f"Trade-off of {name}: recovery over calls for 1,000 attempts",
        strokes=strokes,
        across=[Label(0.02, "0 calls for 1,000"), Label(0.97, number(calls))],
        up=[Label(0, "0"), Label(0.95, span(slowest * _SECOND))],
    )

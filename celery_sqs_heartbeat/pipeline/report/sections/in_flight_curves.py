"""The section of the report on messages in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label, Plot
from celery_sqs_heartbeat.pipeline.report.figures import moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import Rows
from celery_sqs_heartbeat.pipeline.report.timeline import MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInFlight:
    """One queue's messages in flight.

    Attributes:
        highest: When there were the most, in words.
        steps: The curves as a table.
    """

    name: str
    curves: Plot
    highest: str
    steps: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightCurves:
    """The section's content: the queues with the highest peaks."""

    queues: Sequence[QueueInFlight]


def in_flight_curves(found: Findings) -> InFlightCurves | str:
    """Return the messages in flight over time, by queue."""
    if not found.in_flight:
        return "No message was in flight."
    queues = groupby(found.in_flight, key=lambda row: row["queue"])
    return InFlightCurves(queues=[_queue(text(queue), list(rows)) for queue, rows in queues])


def _queue(name: str, rows: Rows) -> QueueInFlight:
    step = rows[0]["step_us"]
    begin, end = rows[0]["at"], rows[-1]["at"] + step
    peak = max(row["peak"] for row in rows)
    slots = max((row["slots"] or 0 for row in rows), default=0)
    # Far more slots are shown in words only: drawn, they would flatten the curves.
    top = max(peak, slots if slots <= 3 * peak else 0, 1)

    def steps(values: Mapping[int, float]) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for at in range(begin, end, step):
            value = values.get(at, 0) / top
            points += [((each - begin) / (end - begin), value) for each in (at, at + step)]
        return points

    peaks, means = ({row["at"]: row[each] for row in rows} for each in ("peak", "mean"))
    strokes = [
        charts.area(steps(peaks), title=f"peak: {number(peak)} at most", kind="peak"),
        charts.line(steps(means), title="mean", kind="mean"),
    ]
    if slots and slots <= top:
        limits = steps(_filled({row["at"]: row["slots"] for row in rows}, begin, end, step))
        strokes.append(charts.line(limits, title=f"{count(slots, 'slot')} at most", kind="limit"))
    highest = _highest(max(rows, key=lambda row: row["peak"]))
    shares = (0.0, 0.5, 1.0) if end - begin > step else (0.0, 1.0)
    curves = Plot(
        label=f"Messages in flight of {name}: {highest}",
        strokes=strokes,
        across=[Label(share, _clock(begin + share * (end - begin))) for share in shares],
        up=[Label(0, "0"), Label(1, number(top))],
    )
    return QueueInFlight(name=name, curves=curves, highest=highest, steps=_steps(name, rows))


def _steps(name: str, rows: Rows) -> Listing:
    return listing(
        f"In flight of {name}, by {span(rows[0]['step_us'])}",
        ("from (UTC)", "peak", "mean", "slots"),
        [
            (moment(row["at"]), number(row["peak"]), number(row["mean"]), number(row["slots"]))
            for row in rows
        ],
        numbers=3,
    )


def _highest(row: Mapping[str, Any]) -> str:
    """Return when the most messages were in flight, and how many slots there were then."""
    peak, slots, step = row["peak"], row["slots"], row["step_us"]
    when = "minute" if step == MINUTE_US else span(step)
    return (
        f"At most {number(peak)} at once, in the {when} that began at {moment(row['at'])[:16]} "
        f"UTC: {_share(row['quota_share'] or 0)} of SQS's quota"
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


def _clock(at: float) -> str:
    return moment(at)[5:16]


def _share(share: float) -> str:
    return "less than 0.01%" if share < 0.0001 else f"{share:.2%}"

"""The section of the report on messages in flight."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    folded,
    join,
    moment,
    note,
    number,
    plural,
    span,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import Rows
from celery_sqs_heartbeat.pipeline.report.timeline import MINUTE_US


def in_flight(found: Findings) -> Html:
    """Return the messages in flight over time, by queue."""
    if not found.in_flight:
        return note("No message was in flight.")
    words = (
        "Messages received and not yet ended. SQS allows 120,000 of a standard queue. A slot runs "
        "one task: of a day, it is the most that the queue's workers had at any one time. Where "
        "there are more messages than slots, workers hold messages that wait."
    )
    legend = Html(
        '<p class="legend"><span><i class="key peak"></i>peak</span>'
        '<span><i class="key mean"></i>mean</span>'
        '<span><i class="key limit"></i>slots</span></p>'
    )
    queues = groupby(found.in_flight, key=lambda row: row["queue"])
    return join((note(words), legend, *(_queue(queue, list(rows)) for queue, rows in queues)))


def _queue(queue: str, rows: Rows) -> Html:
    step = rows[0]["step_us"]
    begin, end = rows[0]["at"], rows[-1]["at"] + step
    peak = max(row["peak"] for row in rows)
    slots = max((row["slots"] or 0 for row in rows), default=0)
    # Slots far above are given in words: drawn, they would flatten the rest.
    top = max(peak, slots if slots <= 3 * peak else 0, 1)

    def steps(values: Mapping[int, float]) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for at in range(begin, end, step):
            value = values.get(at, 0) / top
            points += [((each - begin) / (end - begin), value) for each in (at, at + step)]
        return points

    name = text(queue)
    peaks, means = ({row["at"]: row[each] for row in rows} for each in ("peak", "mean"))
    shapes = [
        charts.area(steps(peaks), title=f"peak: {number(peak)} at most", kind="peak"),
        charts.line(steps(means), title="mean", kind="mean"),
    ]
    if slots and slots <= top:
        limits = steps(_filled({row["at"]: row["slots"] for row in rows}, begin, end, step))
        shapes.append(charts.line(limits, title=f"{plural(slots, 'slot')} at most", kind="limit"))
    highest = _highest(max(rows, key=lambda row: row["peak"]))
    listed = table(
        f"In flight of {name}, by {span(step)}",
        ("from (UTC)", "peak", "mean", "slots"),
        [
            (moment(row["at"]), number(row["peak"]), number(row["mean"]), number(row["slots"]))
            for row in rows
        ],
        numbers=3,
    )
    shares = (0.0, 0.5, 1.0) if end - begin > step else (0.0, 1.0)
    ticks = [Label(share, _clock(begin + share * (end - begin))) for share in shares]
    picture = charts.plot(
        f"Messages in flight of {name}: {highest}",
        shapes,
        across=ticks,
        up=[Label(0, Html("0")), Label(1, number(top))],
    )
    return join((f"<h3>{name}</h3>", picture, note(highest), folded("As a table", listed)))


def _highest(row: Mapping[str, Any]) -> Html:
    """Return when most messages were in flight, and how many slots there were for them."""
    peak, slots, step = row["peak"], row["slots"], row["step_us"]
    when = "minute" if step == MINUTE_US else span(step)
    return Html(
        f"At most {number(peak)} at once, in the {when} that began at {moment(row['at'])[:16]} "
        f"UTC: {_share(row['quota_share'] or 0)} of SQS's quota"
        + (f", {peak / slots:.1f} for each of {plural(slots, 'slot')}." if slots else ".")
    )


def _filled(known: Mapping[int, int | None], begin: int, end: int, step: int) -> dict[int, float]:
    """Return the slots of each step: where there is no row, those of the one before."""
    values: dict[int, float] = {}
    last = next((each for each in known.values() if each), 0)
    for at in range(begin, end, step):
        last = known.get(at) or last
        values[at] = last
    return values


def _clock(at: float) -> Html:
    return Html(moment(at)[5:16])


def _share(share: float) -> Html:
    return Html("less than 0.01%") if share < 0.0001 else Html(f"{share:.2%}")

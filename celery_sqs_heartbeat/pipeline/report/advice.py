"""The section of the report on recommended settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import glued
from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    folded,
    join,
    note,
    number,
    span,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import QUEUES, Rows
from celery_sqs_heartbeat.pipeline.tuning.confidence import part_of_attempts
from celery_sqs_heartbeat.pipeline.tuning.row import RECOMMENDED, RUNNING

_SECOND = 1_000_000
_KINDS = {RECOMMENDED: "best", RUNNING: "used"}
_LABELS = {RECOMMENDED: "<strong>recommended</strong>", RUNNING: "in use"}


def recommendations(found: Findings) -> Html:
    """Return the settings that the replay recommends, each with its trade-off's curve."""
    if not found.recommendations:
        return note("There is too little in these days to recommend settings from.")
    words = (
        "From a replay of what was measured. Each dot is a candidate: fewer calls to the left, "
        "a sooner recovery after a crash below. An attempt is one receive of a message by a "
        "worker; a message that comes back is one more. "
        "<code>celery -A proj sqs-heartbeat tune</code> prints settings to paste."
    )
    ordered = sorted(
        found.recommendations,
        key=lambda row: (-row["messages"], row["queue"] or "", row["task"] or ""),
    )
    groups = groupby(ordered, key=lambda row: (row["queue"], row["task"]))
    drawn = [_target(queue, task, list(rows)) for (queue, task), rows in groups]
    return join((note(words), *drawn[:QUEUES]))


def _target(queue: str, task: str | None, rows: Rows) -> Html:
    best = next((row for row in rows if row["rank"] == RECOMMENDED), rows[0])
    used = next((row for row in rows if row["rank"] == RUNNING), None)
    name = text(queue) if task is None else f"{text(task)} on {text(queue)}"
    verb = "Set" if used is None else "Keep" if _terms(used) == _terms(best) else "Change to"
    setting = (
        f"<p><strong>{verb} visibility timeout {best['visibility_timeout']} s and threshold "
        f"{number(best['threshold'])} s</strong>, with interval {number(best['interval'])} s and "
        f"max lease {span(best['max_lease'] * _SECOND)}. {text(glued(best['reason']))}</p>"
    )
    listed = table(
        f"Candidates for {name}",
        ("", "timeout", "threshold", "interval", "calls for 1,000", "recovery", "leases lost"),
        [
            (
                ", ".join(_LABELS[row["rank"]] for row in same if row["rank"] in _LABELS),
                f"{same[0]['visibility_timeout']} s",
                f"{number(same[0]['threshold'])} s",
                f"{number(same[0]['interval'])} s",
                number(same[0]["calls_per_1000"]),
                span(same[0]["recovery_s"] * _SECOND),
                part_of_attempts(same[0]["risk"], same[0]["least_risk"]) or "not known",
            )
            for same in _merged(rows)
        ],
        numbers=6,
    )
    return join(
        (
            f"<h3>{name}</h3>",
            setting,
            _curve(name, rows),
            folded("The candidates as a table", listed),
        )
    )


def _terms(row: Mapping[str, Any]) -> tuple[int, float]:
    return row["visibility_timeout"], row["threshold"]


def _merged(rows: Rows) -> Sequence[Rows]:
    """Return the rows by their settings, fewest calls first; those with a label come before."""
    ordered = sorted(
        rows,
        key=lambda row: (
            row["calls_per_1000"],
            *_terms(row),
            row["rank"] not in _LABELS,
            -row["rank"],
        ),
    )
    return [list(same) for _, same in groupby(ordered, key=_terms)]


def _curve(name: str, rows: Rows) -> Html:
    calls = max(row["calls_per_1000"] for row in rows) or 1
    slowest = max(row["recovery_s"] for row in rows) or 1
    in_use = [_terms(row) for row in rows if row["rank"] == RUNNING]

    def place(row: Mapping[str, Any]) -> tuple[float, float]:
        return 0.02 + 0.95 * row["calls_per_1000"] / calls, 0.95 * row["recovery_s"] / slowest

    ordered = sorted(rows, key=lambda row: row["calls_per_1000"])
    curve = [
        place(row) for row in ordered if row["rank"] > RECOMMENDED or _terms(row) not in in_use
    ]
    shapes = [charts.line(curve, title="trade-off", kind="mean")] if len(curve) > 1 else []
    # The two that matter are drawn last, on top: what is recommended in what is in use.
    for row in sorted(ordered, key=lambda row: (row["rank"] in _KINDS, row["rank"])):
        title = (
            f"timeout {row['visibility_timeout']} s: {number(row['calls_per_1000'])} calls for "
            f"1,000 attempts, recovery in {span(row['recovery_s'] * _SECOND)}"
        )
        shapes.append(charts.dot(*place(row), title=title, kind=_KINDS.get(row["rank"], "other")))
    legend = Html(
        '<p class="legend"><span><i class="key round best"></i>recommended</span>'
        '<span><i class="key round used"></i>in use</span>'
        '<span><i class="key round other"></i>other candidates</span></p>'
    )
    picture = charts.plot(
        f"Trade-off of {name}: recovery over calls for 1,000 attempts",
        shapes,
        across=[Label(0.02, Html("0 calls for 1,000")), Label(0.97, number(calls))],
        up=[Label(0, Html("0")), Label(0.95, span(slowest * _SECOND))],
    )
    return join((legend, picture))

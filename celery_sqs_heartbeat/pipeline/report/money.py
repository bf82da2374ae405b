"""The sections of the report on calls and on settings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label
from celery_sqs_heartbeat.pipeline.report.data import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    dollars,
    folded,
    join,
    note,
    number,
    span,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import QUEUES, Rows

_RECOMMENDED = 0
_IN_USE = -1
_SECOND = 1_000_000


def costs(found: Findings) -> Html:
    """Return the calls to SQS, their price and what batching saved."""
    if not found.calls:
        return note("No call to SQS is in the journal.")
    cost, saved = (sum(row[name] or 0 for row in found.calls) for name in ("cost_usd", "saved_usd"))
    calls = max(1, round(sum(row["calls"] for row in found.calls)))
    words = (
        f"{number(calls)} calls cost {dollars(cost)}; a call for each message would have cost "
        f"{dollars(saved)} more. Receives are a lower bound: those that brought nothing are not in "
        "the journal."
    )
    rows = found.calls[:QUEUES]
    most = max(row["cost_usd"] for row in rows) or 1
    listed = table(
        "Calls by queue and kind, the dearest first",
        ("queue", "kind", "", "calls", "messages", "a call", "failed", "cost", "saved"),
        [
            (
                text(row["queue"]),
                text(row["kind"]),
                charts.beam(
                    row["cost_usd"] / most,
                    label=f"{text(row['kind'])}, {text(row['queue'])}: {dollars(row['cost_usd'])}",
                ),
                number(max(1, round(row["calls"]))),
                number(row["entries"]),
                number(row["entries"] / row["calls"] if row["calls"] else None),
                number(row["failed"]),
                dollars(row["cost_usd"]),
                dollars(row["saved_usd"]),
            )
            for row in rows
        ],
        numbers=6,
    )
    return join((f"<p>{words}</p>", listed))


def recommendations(found: Findings) -> Html:
    """Return the settings that the replay recommends, each with its trade-off's curve."""
    if not found.recommendations:
        return note("There is too little in these days to recommend settings from.")
    words = (
        "From a replay of what was measured. Each dot is a candidate: fewer calls to the left, "
        "a sooner recovery after a crash below. "
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
    best = next((row for row in rows if row["rank"] == _RECOMMENDED), rows[0])
    name = text(queue) if task is None else f"{text(task)} on {text(queue)}"
    told = (
        f"<p><strong>Visibility timeout {best['visibility_timeout']} s</strong>, threshold "
        f"{number(best['threshold'])} s, interval {number(best['interval'])} s, max lease "
        f"{span(best['max_lease'] * _SECOND)}. {text(_sentence(best['reason']))} "
        f"Confidence: {text(best['confidence'])}, from {number(best['messages'])} messages.</p>"
    )
    listed = table(
        f"Candidates for {name}",
        ("", "timeout", "threshold", "interval", "calls for 1,000", "recovery", "risk"),
        [
            (
                _which(row),
                f"{row['visibility_timeout']} s",
                f"{number(row['threshold'])} s",
                f"{number(row['interval'])} s",
                number(row["calls_per_1000"]),
                span(row["recovery_s"] * _SECOND),
                _risk(row),
            )
            for row in sorted(rows, key=lambda row: row["calls_per_1000"])
        ],
        numbers=6,
    )
    return join(
        (f"<h3>{name}</h3>", told, _curve(name, rows), folded("The candidates as a table", listed))
    )


def _risk(row: Mapping[str, Any]) -> Html:
    """Return a chance: no figure beyond what so many messages can show."""
    is_known = row["risk"] >= row["least_risk"]
    return Html(f"{row['risk']:.2g}" if is_known else f"&lt; {row['least_risk']:.2g}")


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def _which(row: Mapping[str, Any]) -> str:
    return {_RECOMMENDED: "<strong>recommended</strong>", _IN_USE: "in use"}.get(row["rank"], "")


def _curve(name: str, rows: Rows) -> Html:
    calls = max(row["calls_per_1000"] for row in rows) or 1
    slowest = max(row["recovery_s"] for row in rows) or 1

    def place(row: Mapping[str, Any]) -> tuple[float, float]:
        return 0.02 + 0.95 * row["calls_per_1000"] / calls, 0.95 * row["recovery_s"] / slowest

    ordered = sorted(rows, key=lambda row: row["calls_per_1000"])
    curve = [place(row) for row in ordered if row["rank"] != _IN_USE]
    shapes = [charts.line(curve, title="trade-off", kind="mean")] if len(curve) > 1 else []
    kinds = {_RECOMMENDED: "best", _IN_USE: "used"}
    # The two that matter are drawn last, on top.
    for row in sorted(ordered, key=lambda row: row["rank"] in kinds):
        title = (
            f"timeout {row['visibility_timeout']} s: {number(row['calls_per_1000'])} calls for "
            f"1,000 messages, recovery in {span(row['recovery_s'] * _SECOND)}"
        )
        shapes.append(charts.dot(*place(row), title=title, kind=kinds.get(row["rank"], "other")))
    legend = Html(
        '<p class="legend"><span><i class="key round best"></i>recommended</span>'
        '<span><i class="key round used"></i>in use</span>'
        '<span><i class="key round other"></i>other candidates</span></p>'
    )
    picture = charts.plot(
        f"Trade-off of {name}: recovery over calls for 1,000 messages",
        shapes,
        across=[Label(0.02, Html("0 calls for 1,000")), Label(0.97, number(calls))],
        up=[Label(0, Html("0")), Label(0.95, span(slowest * _SECOND))],
    )
    return join((legend, picture))

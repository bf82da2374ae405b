"""The section of the report on recommended settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import glued
from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.charts import Label, Plot
from celery_sqs_heartbeat.pipeline.report.figures import number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import QUEUES, Rows
from celery_sqs_heartbeat.pipeline.tuning.confidence import part_of_attempts
from celery_sqs_heartbeat.pipeline.tuning.row import RECOMMENDED, RUNNING

_SECOND = 1_000_000
_KINDS = {RECOMMENDED: "best", RUNNING: "used"}
_LABELS = {RECOMMENDED: "recommended", RUNNING: "in use"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The settings of a queue, or of a task that needs its own.

    Attributes:
        setting: What to do, with the main values.
        rest: The other values, and the reason.
        curve: The candidates as a picture.
    """

    name: str
    setting: str
    rest: str
    curve: Plot
    candidates: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsAdvice:
    """The section's content: the targets with the most messages."""

    targets: Sequence[Target]


def settings_advice(found: Findings) -> SettingsAdvice | str:
    """Return the settings that the replay recommends, each with the curve of its trade-off."""
    if not found.recommendations:
        return "There is too little data on these days to recommend settings."
    ordered = sorted(
        found.recommendations,
        key=lambda row: (-row["messages"], row["queue"] or "", row["task"] or ""),
    )
    groups = groupby(ordered, key=lambda row: (row["queue"], row["task"]))
    targets = [_target(queue, task, list(rows)) for (queue, task), rows in groups]
    return SettingsAdvice(targets=targets[:QUEUES])


def _target(queue: str, task: str | None, rows: Rows) -> Target:
    best = next((row for row in rows if row["rank"] == RECOMMENDED), rows[0])
    used = next((row for row in rows if row["rank"] == RUNNING), None)
    name = text(queue) if task is None else f"{task} on {text(queue)}"
    verb = "Set" if used is None else "Keep" if _terms(used) == _terms(best) else "Change to"
    return Target(
        name=name,
        setting=f"{verb} visibility timeout {best['visibility_timeout']} s and threshold "
        f"{number(best['threshold'])} s",
        rest=f"with interval {number(best['interval'])} s and max lease "
        f"{span(best['max_lease'] * _SECOND)}. {glued(text(best['reason']))}",
        curve=_curve(name, rows),
        candidates=_candidates(name, rows),
    )


def _candidates(name: str, rows: Rows) -> Listing:
    return listing(
        f"Candidates for {name}",
        ("", "timeout", "threshold", "interval", "calls for 1,000", "recovery", "leases lost"),
        [
            (
                [_LABELS[row["rank"]] for row in same if row["rank"] in _LABELS],
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
        kinds={"": "labels"},
    )


def _terms(row: Mapping[str, Any]) -> tuple[int, float]:
    return row["visibility_timeout"], row["threshold"]


def _merged(rows: Rows) -> Sequence[Rows]:
    """Return the rows by their settings, fewest calls first and rows with a label before others."""
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


def _curve(name: str, rows: Rows) -> Plot:
    calls = max(row["calls_per_1000"] for row in rows) or 1
    slowest = max(row["recovery_s"] for row in rows) or 1
    in_use = [_terms(row) for row in rows if row["rank"] == RUNNING]

    def place(row: Mapping[str, Any]) -> tuple[float, float]:
        return 0.02 + 0.95 * row["calls_per_1000"] / calls, 0.95 * row["recovery_s"] / slowest

    ordered = sorted(rows, key=lambda row: row["calls_per_1000"])
    curve = [
        place(row) for row in ordered if row["rank"] > RECOMMENDED or _terms(row) not in in_use
    ]
    strokes = [charts.line(curve, title="trade-off", kind="mean")] if len(curve) > 1 else []
    # The two important dots are drawn last, on top: the recommended one within the one in use.
    for row in sorted(ordered, key=lambda row: (row["rank"] in _KINDS, row["rank"])):
        title = (
            f"timeout {row['visibility_timeout']} s: {number(row['calls_per_1000'])} calls for "
            f"1,000 attempts, recovery in {span(row['recovery_s'] * _SECOND)}"
        )
        strokes.append(charts.dot(*place(row), title=title, kind=_KINDS.get(row["rank"], "other")))
    return Plot(
        label=f"Trade-off of {name}: recovery over calls for 1,000 attempts",
        strokes=strokes,
        across=[Label(0.02, "0 calls for 1,000"), Label(0.97, number(calls))],
        up=[Label(0, "0"), Label(0.95, span(slowest * _SECOND))],
    )

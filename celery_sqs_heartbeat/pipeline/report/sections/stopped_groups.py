"""The section of the report on groups of FIFO queues that a failure stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.figures import moment, number, span, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedGroups:
    """The section's content: groups by their total, and the longest stops.

    Attributes:
        left_out: How many groups are not shown; empty if all are.
        summary: Summary of the stops.
    """

    groups: Listing
    left_out: str
    summary: str
    stops: Listing


def stopped_groups(found: Findings) -> StoppedGroups | str:
    """Return which groups were stopped, for how long, and because of which message."""
    if not found.stopped_groups:
        return _no_stops(found.grouped)
    groups, stops = found.stop_sums["groups"], found.stop_sums["stops"]
    left_out = groups - len(found.stopped_groups)
    shown = len(found.group_stops)
    return StoppedGroups(
        groups=_groups(found),
        left_out=f"Not shown: {count(left_out, 'group')} of {groups:,}, with shorter stops."
        if left_out
        else "",
        summary=(
            f"The longest {shown} of {count(stops, 'stop')}"
            if shown < stops
            else count(stops, "stop") + " one by one"
        ),
        stops=_stops(found),
    )


def _groups(found: Findings) -> Listing:
    return listing(
        "Groups, the longest stopped first",
        (
            "queue",
            "group",
            "mostly because of",
            "task",
            "stops",
            "waited",
            "dead letters",
            "longest",
            "stopped for",
        ),
        [
            (
                text(row["queue"]),
                text(row["grp"]),
                text(row["msg"]),
                text(row["task"]),
                number(row["stops"]),
                number(row["waiting"]),
                number(row["dead_letters"]),
                _span(row["longest"]),
                _span(row["seconds"]),
            )
            for row in found.stopped_groups
        ],
        numbers=5,
        kinds={"group": "code", "mostly because of": "code"},
    )


def _stops(found: Findings) -> Listing:
    return listing(
        "Messages that stopped their group, the longest first",
        (
            "stopped at",
            "queue",
            "group",
            "task",
            "message",
            "outcome",
            "receives",
            "waited",
            "stopped for",
        ),
        [
            (
                moment(row["stopped_at"]),
                text(row["queue"]),
                text(row["grp"]),
                text(row["task"]),
                text(row["msg"]),
                text(row["outcome"]),
                number(row["attempts"]),
                number(row["waiting"]),
                _span(row["seconds"]) + (" and more" if _goes_on(row) else ""),
            )
            for row in found.group_stops
        ],
        numbers=3,
        kinds={"group": "code", "message": "code"},
    )


def _span(seconds: float) -> str:
    return span(seconds * _MICROSECONDS)


def _goes_on(row: Mapping[str, Any]) -> bool:
    return row["resumed_at"] is None and row["outcome"] != "dead letter"


def _no_stops(grouped: Mapping[str, Any]) -> str:
    """Return that no group stopped, with the data that it is based on."""
    receives, known = grouped["receives"], grouped["with_group"]
    if not receives:
        return "No message of a FIFO queue was received, so no group can have stopped."
    said = f"No failure stopped a group, in {count(known, 'receive')} of FIFO queues."
    if known < receives:
        said += (
            f" {receives - known:,} more have no group in the journal: older versions wrote them."
        )
    return said

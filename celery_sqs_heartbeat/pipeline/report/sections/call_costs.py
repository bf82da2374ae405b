"""The section of the report on calls to SQS and their price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import count
from celery_sqs_heartbeat.pipeline.report.charts import Beam
from celery_sqs_heartbeat.pipeline.report.figures import dollars, number, text
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.listings import Listing, listing
from celery_sqs_heartbeat.pipeline.report.queries import QUEUES

#: A part of a call below this is a rounding error.
_TINY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCosts:
    """The section's content: sums, and the calls by queue and kind."""

    calls: str
    cost: str
    saved: str
    by_kind: Listing


def call_costs(found: Findings) -> CallCosts | str:
    """Return the calls to SQS, their price, and how much batching saved."""
    if not found.calls:
        return "No call to SQS is in the journal."
    cost, saved = (sum(row[name] or 0 for row in found.calls) for name in ("cost_usd", "saved_usd"))
    return CallCosts(
        calls=count(sum(_whole(row) for row in found.calls), "call"),
        cost=dollars(cost),
        saved=dollars(saved),
        by_kind=_by_kind(found),
    )


def _by_kind(found: Findings) -> Listing:
    rows = found.calls[:QUEUES]
    most = max(row["cost_usd"] for row in rows) or 1
    return listing(
        "Calls by queue and kind, the most expensive first"
        + (f": {len(rows)} of {len(found.calls):,}" if len(rows) < len(found.calls) else ""),
        ("queue", "kind", "", "calls", "entries", "entries per call", "failed", "cost", "saved"),
        [
            (
                text(row["queue"]),
                text(row["kind"]),
                Beam(
                    row["cost_usd"] / most,
                    f"{text(row['kind'])}, {text(row['queue'])}: {dollars(row['cost_usd'])}",
                ),
                number(_whole(row)),
                number(row["entries"]),
                number(row["entries"] / _whole(row)),
                number(row["failed"]),
                dollars(row["cost_usd"]),
                dollars(row["saved_usd"]),
            )
            for row in rows
        ],
        numbers=6,
        kinds={"": "beam"},
    )


def _whole(row: Mapping[str, Any]) -> int:
    """Return whole calls, because a call was made even if the journal has only a part of it."""
    calls: float = row["calls"]
    return max(1, math.ceil(calls - _TINY))

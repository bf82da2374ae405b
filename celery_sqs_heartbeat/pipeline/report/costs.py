"""The section of the report on calls to SQS and their price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.pipeline.report import charts
from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    dollars,
    join,
    note,
    number,
    plural,
    table,
    text,
)
from celery_sqs_heartbeat.pipeline.report.queries import QUEUES

#: Below this a part of a call is a rounding error.
_TINY = 1e-6


def costs(found: Findings) -> Html:
    """Return the calls to SQS, their price and what batching saved."""
    if not found.calls:
        return note("No call to SQS is in the journal.")
    cost, saved = (sum(row[name] or 0 for row in found.calls) for name in ("cost_usd", "saved_usd"))
    words = (
        f"{plural(sum(_whole(row) for row in found.calls), 'call')} cost {dollars(cost)}; a call "
        f"for each entry would have cost {dollars(saved)} more. An entry is one message in a call. "
        "Receives that brought no message are not in the journal, and come on top."
    )
    rows = found.calls[:QUEUES]
    most = max(row["cost_usd"] for row in rows) or 1
    listed = table(
        "Calls by queue and kind, the dearest first"
        + (f": {len(rows)} of {len(found.calls):,}" if len(rows) < len(found.calls) else ""),
        ("queue", "kind", "", "calls", "entries", "entries a call", "failed", "cost", "saved"),
        [
            (
                text(row["queue"]),
                text(row["kind"]),
                charts.beam(
                    row["cost_usd"] / most,
                    label=f"{text(row['kind'])}, {text(row['queue'])}: {dollars(row['cost_usd'])}",
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
    )
    return join((f"<p>{words}</p>", listed))


def _whole(row: Mapping[str, Any]) -> int:
    """Return whole calls: one that the journal has a part of was made all the same."""
    calls: float = row["calls"]
    return max(1, math.ceil(calls - _TINY))

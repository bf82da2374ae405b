"""Writes recommendations as settings to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.core.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.escaping import escaped
from celery_sqs_heartbeat.settings import PREFIX

if TYPE_CHECKING:
    from celery_sqs_heartbeat.pipeline.comparing import Verdict
    from celery_sqs_heartbeat.pipeline.recommending import Row

_WIDTH = 96


def as_settings(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """Return Python code, each setting with its reason as a comment.

    Args:
        rows: Of what is recommended (rank 0), and what runs (rank -1).
        names: Celery's names of queues, by those that SQS has.
    """
    running = {row.queue: row for row in rows if row.rank < 0}
    recommended = [row for row in rows if row.rank == 0]
    lines = [f"{PREFIX}queues = {{"]
    for row in recommended:
        if row.task is None:
            lines += _comment(_why(row, running.get(row.queue)), "    ")
            lines.append(f"    {names.get(row.queue, row.queue)!r}: {_values(row)},")
    lines.append("}")
    for row in recommended:
        if row.task is not None:
            why = f"Task {row.task} on queue {names.get(row.queue, row.queue)}: {_why(row, None)}"
            lines += ["", *_comment(why, ""), f"# @app.task(sqs_heartbeat={_values(row)})"]
    return "\n".join(lines)


def as_text(verdicts: Iterable[Verdict]) -> str:
    """Return a line for each setting that was compared."""
    return "\n".join(["", *(escaped(_line(verdict)) for verdict in verdicts)])


def _line(verdict: Verdict) -> str:
    whose = f"queue {verdict.queue}" + (f", task {verdict.task}" if verdict.task else "")
    said = f"visibility_timeout={verdict.visibility_timeout}, threshold={verdict.threshold:g}"
    return f"# {'WORSE' if verdict.fault else 'OK'}: {whose}: {verdict.fault or said}"


def _why(row: Row, running: Row | None) -> str:
    text = f"{row.reason}. Confidence {row.confidence}, from {row.messages:,} messages."
    if running is None:
        return text
    return (
        f"{text} With visibility_timeout={running.visibility_timeout} and "
        f"threshold={running.threshold:g}, as most were received: {running.calls_per_1000:,.0f} "
        f"calls, {running.recovery_s:,.0f} s."
    )


def _values(row: Row) -> str:
    values = {"visibility_timeout": row.visibility_timeout, "threshold": row.threshold}
    if row.max_lease < DEFAULT_MAX_LEASE_SECONDS:
        values["max_lease"] = row.max_lease
    return "{" + ", ".join(f'"{name}": {value:g}' for name, value in values.items()) + "}"


def _comment(text: str, indent: str) -> Iterator[str]:
    start = f"{indent}# "
    yield from textwrap.wrap(
        escaped(text),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )

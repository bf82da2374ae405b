"""Formats recommendations as settings to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS
from celery_sqs_heartbeat.pipeline.phrases import GLUE, glued
from celery_sqs_heartbeat.settings import PREFIX

if TYPE_CHECKING:
    from celery_sqs_heartbeat.pipeline.advice import Row, Verdict

_WIDTH = 96
_WORDS = (
    "An attempt is one receive of a message by a worker. If a message is received again, that is "
    "another attempt. The worker holds the message until its task ends. Until then, extension "
    "calls hide it from other workers. If they come too late, the worker loses its lease."
)


def as_settings(
    rows: Sequence[Row], names: Mapping[str, str], *, rename: Callable[[str], str] = str
) -> str:
    """Return Python code, each setting with its reason as a comment.

    Args:
        rows: The recommended settings (rank 0) and the running ones (rank -1).
        names: Celery's queue names, by SQS's names.
        rename: Names a setting as the app's users write it, see `naming`. If the app has a
            namespace, as in Django, the code is for its settings module. Otherwise it is for the
            module that makes the app.
    """
    setting = f"{PREFIX}queues"
    renamed = rename(setting)
    target = renamed if renamed != setting else f"app.conf.{setting}"
    running = {row.queue: row for row in rows if row.rank < 0}
    recommended = [row for row in rows if row.rank == 0]
    lines = [*_comment(_WORDS, ""), f"{target} = {{"]
    for row in recommended:
        if row.task is None:
            lines += _comment(f"{_head(row, running.get(row.queue))} {row.reason}", "    ")
            lines.append(f"    {names.get(row.queue, row.queue)!r}: {_values(row)},")
    lines.append("}")
    for row in recommended:
        if row.task is not None:
            whose = f"Task {row.task} on queue {names.get(row.queue, row.queue)}:"
            lines += ["", *_comment(f"{whose} {_head(row, None)} {row.reason}", "")]
            lines.append(f"# @app.task(sqs_heartbeat={_values(row)})")
    return "\n".join(lines)


def as_text(verdicts: Iterable[Verdict]) -> str:
    """Return a line for each setting that was compared."""
    return "\n".join(["", *(escaped(_line(verdict)) for verdict in verdicts)])


def _line(verdict: Verdict) -> str:
    whose = f"queue {verdict.queue}" + (f", task {verdict.task}" if verdict.task else "")
    said = f"visibility_timeout={verdict.visibility_timeout}, threshold={verdict.threshold:g}"
    if verdict.fault:
        return f"# WORSE: {whose}: {said}: {verdict.fault}"
    thin = "; too little data to find faults" if verdict.confidence == "low" else ""
    return f"# OK: {whose}: {said}{thin}"


def _head(row: Row, running: Row | None) -> str:
    """Return the values, and whether they differ from those in use."""
    timeout, threshold = f"{row.visibility_timeout:,} s", f"{row.threshold:,g} s"
    if running is None:
        return f"Set visibility_timeout {timeout} and threshold {threshold}."
    old = (running.visibility_timeout, running.threshold)
    if (row.visibility_timeout, row.threshold) == old:
        return f"Keep visibility_timeout {timeout} and threshold {threshold}."
    return (
        f"Change visibility_timeout from {old[0]:,} s to {timeout}, and threshold from "
        f"{old[1]:,g} s to {threshold}."
    )


def _values(row: Row) -> str:
    values = {"visibility_timeout": row.visibility_timeout, "threshold": row.threshold}
    if row.max_lease < DEFAULT_MAX_LEASE_SECONDS:
        values["max_lease"] = row.max_lease
    return "{" + ", ".join(f'"{name}": {value:g}' for name, value in values.items()) + "}"


def _comment(text: str, indent: str) -> Iterator[str]:
    start = f"{indent}# "
    lines = textwrap.wrap(
        glued(escaped(text)),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(GLUE, " ") for line in lines)

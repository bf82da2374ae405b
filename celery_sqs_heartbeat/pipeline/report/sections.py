"""The first and the last section of the report: what happened, and what nobody knows."""

from __future__ import annotations

from celery_sqs_heartbeat.pipeline.report.findings import Findings
from celery_sqs_heartbeat.pipeline.report.markup import (
    Html,
    join,
    moment,
    note,
    number,
    plural,
    span,
    table,
    text,
)

#: How an attempt ended, for people.
_ENDS = {
    "deleted": "done, its message deleted",
    "released": "given back",
    "lapsed": "left to become visible by itself",
    "lost": "lost: SQS said that it was not ours any more",
    "capped": "kept for as long as may be, then let go",
    "continued": "received again by the same worker, which went on",
    "abandoned": "no event tells of its end: its worker died",
    "running": "its task still ran at the end of the journal",
    "waiting": "received, and its task had not started at the end of the journal",
}


def overview(found: Findings) -> Html:
    """Return what happened, in words and figures."""
    seen = found.overview
    attempts = seen["attempts"]
    if not attempts:
        return note("No message was received in these days, as far as the journal tells.")
    messages = plural(seen["messages"], "message")
    pairs = sum(row["pairs"] for row in found.causes)
    words = (
        f"In {span(seen['end'] - seen['begin'])}, from {_whole(seen['begin'])} to "
        f"{_whole(seen['end'])} UTC, {plural(seen['workers'], 'worker')} received "
        f"{messages} {plural(attempts, 'time')}, from {plural(seen['queues'], 'queue')} for "
        f"{plural(seen['tasks'], 'task')}. "
        + (_repeated(pairs) if pairs else "None of them was executed twice.")
    )
    figures = (
        ("Messages", number(seen["messages"])),
        ("Attempts", number(attempts)),
        ("Workers that received something", number(seen["workers"])),
        ("Duplicates", number(pairs)),
        ("Extensions", number(seen["extensions"])),
        ("Failed extensions", number(seen["failures"])),
        ("Keeper late", number(found.workers["late_count"] or 0)),
    )
    ends = sorted(found.ends, key=lambda row: -row["attempts"])
    return join(
        (
            f"<p>{words}</p>",
            '<dl class="figures">',
            join(f"<div><dt>{name}</dt><dd>{figure}</dd></div>" for name, figure in figures),
            "</dl>",
            table(
                "How attempts ended",
                ("ended", "which means", "attempts", "share"),
                [
                    (
                        text(row["ended_as"]),
                        text(_ENDS.get(row["ended_as"], "")),
                        number(row["attempts"]),
                        f"{row['attempts'] / attempts:.1%}",
                    )
                    for row in ends
                ],
                numbers=2,
            ),
        )
    )


def _whole(microseconds: float) -> str:
    return f'<span class="whole">{moment(microseconds)}</span>'


def _repeated(pairs: int) -> str:
    if pairs == 1:
        return "1 execution is a duplicate: it began although the one before had not failed."
    return (
        f"{pairs:,} executions are duplicates: they began although the one before had not failed."
    )


def losses(found: Findings) -> Html:
    """Return what of the journal could not be read."""
    missing = found.workers["missing"] or 0
    if missing:
        gaps = (
            f"By the gaps in the workers' line numbers, {plural(missing, 'line')} of the journal "
            f"{'is' if missing == 1 else 'are'} missing: figures are too small by what was in "
            f"{'it' if missing == 1 else 'them'}."
        )
    else:
        gaps = "The workers' line numbers have no gaps."
    unfinished = (found.workers["starts"] or 0) - (found.workers["stopped"] or 0)
    if unfinished:
        gaps += (
            f" {plural(unfinished, 'worker has', 'workers have')} no last line: still running, "
            "or killed."
        )
    if not found.rejects:
        read = "Every line could be read." if found.workers["starts"] else "There are no lines."
        return note(f"{read} {gaps}")
    listed = table(
        "What could not be read",
        ("file", "reason", "lines"),
        [
            (f"<code>{text(row['file'])}</code>", text(row["reason"]), number(row["lines"]))
            for row in found.rejects
        ],
        numbers=1,
    )
    return join((note(gaps), listed))

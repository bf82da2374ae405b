"""The sections of the report: what each says if there is something to say, and if there is not.

A section is a function from what the queries found to its blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from celery_sqs_heartbeat.pipeline.phrases import GLUE, count
from celery_sqs_heartbeat.pipeline.report import words
from celery_sqs_heartbeat.pipeline.report.blocks import (
    Beam,
    Block,
    Column,
    Figures,
    Row,
    Table,
    Text,
    column,
    dollars,
    moment,
    number,
    span,
    text,
)
from celery_sqs_heartbeat.pipeline.report.plotted import advice, durations, in_flight
from celery_sqs_heartbeat.pipeline.report.queries import IN_NO_JOURNAL, QUEUES, SHOWN, Found
from celery_sqs_heartbeat.pipeline.tables.causes import CAUSES

_MICROSECONDS = 1_000_000
#: A part of a call below this is a rounding error.
_TINY = 1e-6


def _overview(found: Found) -> Iterator[Block]:
    seen = found["overview"][0]
    attempts = seen["attempts"]
    if not attempts:
        yield Text("The journal shows no received message on these days.")
        return
    pairs = sum(row["pairs"] for row in found["causes"])
    began, ended = (moment(seen[name]).replace(" ", GLUE) for name in ("begin", "end"))
    repeated = _repeated(pairs) if seen["started"] else words.NO_STARTS
    yield Text(
        f"In {span(seen['end'] - seen['begin'])}, from {began} to {ended} UTC, "
        f"{count(seen['workers'], 'worker')} received {count(seen['messages'], 'message')} "
        f"{count(attempts, 'time')}, from {count(seen['queues'], 'queue')} for "
        f"{count(seen['tasks'], 'task')}. {repeated}",
        is_quiet=False,
    )
    idle = sum(row["receives"] for row in found["receives"] if row["why"] is not None)
    figures = {
        "Messages": seen["messages"],
        "Attempts": attempts,
        "Workers that received something": seen["workers"],
        "Duplicates": pairs,
        "Receives without an execution": idle,
        "Extensions": seen["extensions"],
        "Failed extensions": seen["failures"],
        "Keeper late": found["workers"][0]["late_count"] or 0,
    }
    yield Figures([(name, number(figure)) for name, figure in figures.items()])
    columns = (
        column("ended", "ended_as"),
        Column("meaning", lambda row: words.ENDS.get(row["ended_as"], "")),
        column("attempts", show=number),
        Column("share", lambda row: f"{row['attempts'] / attempts:.1%}", is_number=True),
    )
    yield Table(caption="How attempts ended", columns=columns, rows=found["ends"])


def _repeated(pairs: int) -> str:
    if not pairs:
        return "None of them was executed twice."
    if pairs == 1:
        return "1 execution is a duplicate: it began although the one before had not failed."
    return (
        f"{pairs:,} executions are duplicates: they began although the one before had not failed."
    )


def _duplicates(found: Found) -> Iterator[Block]:
    causes = found["causes"]
    if not causes:
        yield Text(_no_duplicates(found))
        return
    pairs, most = sum(row["pairs"] for row in causes), max(row["pairs"] for row in causes)

    def beam(row: Row) -> Beam:
        return Beam(row["pairs"] / most, f"{row['cause']}: {count(row['pairs'], 'pair')}")

    by_cause = (
        column("cause", kind="strong"),
        Column("meaning", lambda row: CAUSES[row["cause"]].meaning),
        Column("what to do", lambda row: CAUSES[row["cause"]].advice.replace("`", "")),
        Column("", beam, "beam"),
        column("pairs", show=number),
        column("both succeeded", "both_succeeded", number),
        column("overlap", "overlap_us", span),
    )
    yield Table(caption="Duplicates by root cause", columns=by_cause, rows=causes)
    one_by_one = (
        column("started again", "second_started", moment),
        column("queue"),
        column("task"),
        column("message", "msg", kind="code"),
        column("cause"),
        column("evidence"),
        Column("workers", lambda row: f"{text(row['first_wid'])} → {text(row['second_wid'])}"),
        column("overlap", "overlap_us", span),
    )
    all_of_them = count(pairs, "pair") + " with evidence"
    yield Table(
        caption="Pairs of executions, the longest overlap first",
        columns=one_by_one,
        rows=found["duplicates"],
        summary=all_of_them if pairs <= SHOWN else f"The first {SHOWN} of {all_of_them}",
    )


def _no_duplicates(found: Found) -> str:
    """Return the all-clear, with the data that it is based on."""
    seen, workers = found["overview"][0], found["workers"][0]
    if not seen["attempts"]:
        return "No message was received, so nothing is known about duplicates."
    if not seen["started"]:
        return words.NO_STARTS
    unseen = sum(row["receives"] for row in found["receives"] if row["why"] == IN_NO_JOURNAL)
    has_gaps = workers["missing"] or workers["before"] or found["rejects"]
    doubts = [
        *(["missing lines may contain duplicates"] if has_gaps else []),
        *([f"{count(unseen, 'receive is', 'receives are')} in no journal"] if unseen else []),
    ]
    return (
        f"No message was executed twice in the journal of {count(seen['workers'], 'worker')}: "
        f"{count(seen['messages'], 'message')}, received {count(seen['attempts'], 'time')}"
        + "".join(f"; {doubt}" for doubt in doubts)
        + "."
    )


def _idle_receives(found: Found) -> Iterator[Block]:
    of_queue = Counter[str]()
    for row in found["receives"]:
        of_queue[row["queue"]] += row["receives"]
    idle = [row for row in found["receives"] if row["why"] is not None]
    if not idle:
        none = "A task started in every receive." if of_queue else "No message was received."
        yield Text(none)
        return
    total = sum(row["receives"] for row in idle)
    yield Text(
        f"No task is known to have started in {number(total)} of "
        f"{count(sum(of_queue.values()), 'receive')}. Each of them counts toward the queue's "
        "maxReceiveCount: a message with too many becomes a dead letter without having run.",
        is_quiet=False,
    )
    columns = (
        column("queue"),
        column("cause", "why", kind="strong"),
        Column("meaning", lambda row: words.MEANINGS.get(row["why"], "")),
        column("receives", show=number),
        Column(
            "share of queue",
            lambda row: f"{row['receives'] / of_queue[row['queue']]:.1%}",
            is_number=True,
        ),
    )
    caption = "Receives without an execution, by queue and cause"
    yield Table(caption=caption, columns=columns, rows=idle)


def _recoveries(found: Found) -> Iterator[Block]:
    if not found["recoveries"]:
        yield Text("No attempt ended before its message was done, so there was nothing to recover.")
        return
    yield Text(words.ABOUT_RECOVERIES)
    averages = (
        column("queue"),
        column("ended", "ended_as"),
        column("attempts", show=number),
        column("dead letters", "dead_letters", number),
        column("not received yet", "censored", number),
        column("promised", "promised_us", span),
        column("took", "recovery_us", span),
        column("longest", "longest_us", span),
    )
    yield Table(
        caption="Time until the next receive, on average",
        columns=averages,
        rows=found["recoveries"],
    )
    one_by_one = (
        column("ended at", "failed", moment),
        column("queue"),
        column("task"),
        column("message", "msg", kind="code"),
        column("ended", "ended_as"),
        column("promised", "promised_us", span),
        Column("took", _took, is_number=True),
        Column(
            "excess",
            lambda row: span(None if row["is_censored"] else row["excess_us"]),
            is_number=True,
        ),
    )
    yield Table(
        caption="Attempts, the furthest beyond the promise first",
        columns=one_by_one,
        rows=found["slowest"],
        summary="The slowest",
    )


def _took(row: Row) -> str:
    if row["is_dead_letter"]:
        return "dead letter"
    return span(row["recovery_us"]) + (" and more" if row["is_censored"] else "")


def _groups(found: Found) -> Iterator[Block]:
    groups = found["stopped_groups"]
    if not groups:
        yield Text(_no_stops(found["grouped"][0]))
        return
    yield Text(words.ABOUT_GROUPS)
    sums = found["stop_sums"][0]
    if left_out := sums["groups"] - len(groups):
        yield Text(
            f"Not shown: {count(left_out, 'group')} of {sums['groups']:,}, with shorter stops.",
            is_quiet=False,
        )
    by_group = (
        column("queue"),
        column("group", "grp", kind="code"),
        column("mostly because of", "msg", kind="code"),
        column("task"),
        column("stops", show=number),
        column("waited", "waiting", number),
        column("dead letters", "dead_letters", number),
        column("longest", "longest", _seconds),
        column("stopped for", "seconds", _seconds),
    )
    yield Table(caption="Groups, the longest stopped first", columns=by_group, rows=groups)
    one_by_one = (
        column("stopped at", "stopped_at", moment),
        column("queue"),
        column("group", "grp", kind="code"),
        column("task"),
        column("message", "msg", kind="code"),
        column("outcome"),
        column("receives", "attempts", number),
        column("waited", "waiting", number),
        Column("stopped for", _stopped_for, is_number=True),
    )
    shown, stops = found["group_stops"], sums["stops"]
    yield Table(
        caption="Messages that stopped their group, the longest first",
        columns=one_by_one,
        rows=shown,
        summary=f"The longest {len(shown)} of {count(stops, 'stop')}"
        if len(shown) < stops
        else count(stops, "stop") + " one by one",
    )


def _seconds(seconds: float) -> str:
    return span(seconds * _MICROSECONDS)


def _stopped_for(row: Row) -> str:
    goes_on = row["resumed_at"] is None and row["outcome"] != "dead letter"
    return _seconds(row["seconds"]) + (" and more" if goes_on else "")


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


def _costs(found: Found) -> Iterator[Block]:
    calls = found["calls"]
    if not calls:
        yield Text("No call to SQS is in the journal.")
        return
    cost, saved = (sum(row[name] or 0 for row in calls) for name in ("cost_usd", "saved_usd"))
    yield Text(
        f"{count(sum(map(_whole, calls)), 'call')} cost {dollars(cost)}. One call for each entry "
        f"would have cost {dollars(saved)} more. An entry is one message in a call. Receives that "
        "returned no message are not in the journal, so their cost is not included.",
        is_quiet=False,
    )
    rows = calls[:QUEUES]
    most = max(row["cost_usd"] for row in rows) or 1

    def beam(row: Row) -> Beam:
        label = f"{text(row['kind'])}, {text(row['queue'])}: {dollars(row['cost_usd'])}"
        return Beam(row["cost_usd"] / most, label)

    columns = (
        column("queue"),
        column("kind"),
        Column("", beam, "beam"),
        Column("calls", lambda row: number(_whole(row)), is_number=True),
        column("entries", show=number),
        Column(
            "entries per call",
            lambda row: number(row["entries"] / _whole(row)),
            is_number=True,
        ),
        column("failed", show=number),
        column("cost", "cost_usd", dollars),
        column("saved", "saved_usd", dollars),
    )
    caption = "Calls by queue and kind, the most expensive first"
    if len(rows) < len(calls):
        caption += f": {len(rows)} of {len(calls):,}"
    yield Table(caption=caption, columns=columns, rows=rows)


def _whole(row: Row) -> int:
    """Return whole calls, because a call was made even if the journal has only a part of it."""
    calls: float = row["calls"]
    return max(1, math.ceil(calls - _TINY))


def _losses(found: Found) -> Iterator[Block]:
    gaps = _gaps(found["workers"][0])
    if not found["rejects"]:
        is_any = found["workers"][0]["starts"]
        read = "Every line could be read." if is_any else "There are no lines."
        yield Text(f"{read} {gaps}")
        return
    yield Text(gaps)
    columns = (column("file", kind="code"), column("reason"), column("lines", show=number))
    yield Table(caption="What could not be read", columns=columns, rows=found["rejects"])


def _gaps(workers: Mapping[str, Any]) -> str:
    missing = workers["missing"] or 0
    gaps = "The workers' line numbers have no gaps."
    if missing:
        gaps = (
            f"Gaps in the workers' line numbers show that {count(missing, 'line')} of the journal "
            f"{'is' if missing == 1 else 'are'} missing: the figures do not include "
            f"{'it' if missing == 1 else 'them'}."
        )
    unfinished = (workers["starts"] or 0) - (workers["stopped"] or 0)
    if unfinished:
        gaps += (
            f" {count(unfinished, 'worker has', 'workers have')} no last line: still running, "
            "or killed."
        )
    return gaps


#: Each section's anchor, title and content, in the page's order.
SECTIONS: tuple[tuple[str, str, Callable[[Found], Iterator[Block]]], ...] = (
    ("overview", "What happened", _overview),
    ("duplicates", "Duplicates", _duplicates),
    ("idle-receives", "Receives without an execution", _idle_receives),
    ("recoveries", "Recovery", _recoveries),
    ("groups", "Stopped groups", _groups),
    ("durations", "Durations", durations),
    ("in-flight", "In flight", in_flight),
    ("costs", "Calls and their price", _costs),
    ("recommendations", "Recommended settings", advice),
    ("losses", "Missing from the journal", _losses),
)

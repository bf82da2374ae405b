"""A soak for people: its numbers, the causes that explain too much, and a message's history."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.soak.audit import Verdict
from tests.soak.messages import Message
from tests.soak.records import CHANGE, DELETE, Call, Entry, Records
from tests.soak.table import TABLE
from tests.soak.workers import MACHINE

#: A cause may be used so often in any soak, whatever its share: the kill of one worker that held
#: all waiting messages has caused up to 37 extra receives. In a small soak, a share means little.
ALWAYS = 25
#: The width of the name column, in characters.
WIDTH = 60
#: Harm that began so many seconds before a message was sent is left out.
BEFORE = 20.0
LOG_LINES = 16
#: Longer delays of an answer are shown, in seconds.
SLOW = 0.1


def summarize(verdicts: Sequence[Verdict], records: Records) -> str:
    """Return tables of what happened to the messages and what was done to the workers."""
    uses, total = _uses(verdicts)
    tables: dict[str, Mapping[str, object]] = {
        "messages by outcome": Counter(verdict.account for verdict in verdicts),
        "why messages that were done again were started again": Counter(
            cause for verdict in verdicts if verdict.duplicates for cause in verdict.causes
        ),
        "why messages were received again": Counter(
            cause for verdict in verdicts for cause in verdict.redeliveries
        ),
        "receives without an execution": Counter(
            why for verdict in verdicts for why in verdict.unexecuted
        ),
        "extra receives by cause of the table": {
            row.name: f"{uses[row.name]:6} {uses[row.name] / max(1, total):5.0%} "
            f"of at most {row.share:.0%}"
            for row in TABLE
        },
        "calls, without empty receives": Counter(
            f"{call.operation}, {call.fault or 'no fault'}" for call in records.calls
        ),
        "workers": Counter(info.pool for info in records.workers.values()),
        "harm": Counter(harm.what for harm in records.harms),
    }
    lines = []
    for title, rows in tables.items():
        sorted_rows = rows.most_common() if isinstance(rows, Counter) else rows.items()
        lines += [f"{title}:", *(f"  {name:{WIDTH}} {value:>6}" for name, value in sorted_rows)]
    return "\n".join(lines)


def overused(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a fault for each cause that explains more of the extra receives than it may."""
    uses, total = _uses(verdicts)
    return [
        f'"{row.name}" explains {count} of {total} extra receives, {count / total:.0%}: '
        f"at most {row.share:.0%} may have that cause ({row.where})"
        for row in TABLE
        if (count := uses[row.name]) > max(ALWAYS, row.share * total)
    ]


def _uses(verdicts: Sequence[Verdict]) -> tuple[Counter[str], int]:
    """Return how often each cause was used, and how many extra receives there were."""
    counts = Counter(row.name for verdict in verdicts for row in verdict.rows)
    return counts, sum(len(verdict.redeliveries) for verdict in verdicts)


def describe(verdict: Verdict, records: Records) -> str:
    """Return a message's faults, and everything that is known about it, in chronological order."""
    message = verdict.message
    began = message.sent.started
    names = sorted({delivery.receive.worker for delivery in message.deliveries})
    events = [*_events(message)]
    end = max(at for at, _, _ in events) + 10
    for harm in records.harms:
        is_near = harm.worker in ("", *names) and began - BEFORE < harm.at < end
        if is_near and harm.what not in MACHINE:
            until = f" until {harm.until - began:+.3f}" if harm.until < math.inf else ""
            pid = f" {harm.pid}" if harm.pid else ""
            events.append((harm.at, harm.worker or "-", f"! {harm.what}{pid}{until}"))
    ended = [(records.workers[name].ended, name, "! has ended") for name in names]
    events += [event for event in ended if event[0] < end]
    lines = ["; ".join(verdict.faults), f"message {message.message_id}, task {message.task_id}"]
    lines += [f"{at - began:+9.3f}  {who:5} {what}" for at, who, what in sorted(events)]
    for name in names:
        waited = sum(
            harm.until - harm.at
            for harm in records.harms
            if harm.what == "starved" and harm.worker == name and began < harm.at < end
        )
        info = records.workers[name]
        lines.append(
            f"{name}: {info.settings}; waited for a CPU for {waited:.1f} of {end - began:.0f} s"
        )
        log = Path(info.log)
        logged = log.read_text(errors="replace").splitlines() if log.is_file() else []
        named = [f"{name} | {line}" for line in logged if message.message_id in line]
        lines += named[:LOG_LINES]
    return "\n".join(lines)


def _events(message: Message) -> Iterator[tuple[float, str, str]]:
    sent = message.sent
    yield sent.started, sent.worker, f"sends {message.task} to {message.queue.name}"
    for delivery in message.deliveries:
        call, number = delivery.receive, f"#{delivery.count}"
        how = "" if delivery.entry.told else ", but gets no answer"
        what = f"receives it for {delivery.timeout} s, {number}{how}{_fault(call)}"
        yield call.done, call.worker, what
        if call.ended - call.done > SLOW:
            yield call.ended, call.worker, f"gets the answer with {number}"
        for change, entry in delivery.changes + delivery.deletes:
            yield change.started, change.worker, _change(change, entry, number)
    for run in message.runs:
        yield run.start, run.worker, f"starts it, #{run.count}, in process {run.pid}"
        if run.outcome:
            yield run.ended, run.worker, f"{run.outcome}s it, #{run.count}"
    for note in message.expired:
        yield note.at, note.worker, "discards it: expired"


def _fault(call: Call) -> str:
    return f" [{call.fault}]" if call.fault else ""


def _change(call: Call, entry: Entry, number: str) -> str:
    what = "deletes" if call.operation == DELETE else f"hides for {entry.timeout} s"
    if call.operation == CHANGE and not entry.timeout:
        what = "releases"
    done = "done" if entry.done else "not done"
    late = f" at {call.done - call.started:+.2f}" if SLOW < call.done - call.started < 1e9 else ""
    unread = "" if entry.told is entry.done else ", no answer"
    return f"{what} {number}: {done}{late}{unread}{_fault(call)}"

"""Prints a message's history for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from tests.soak.delivery import Message
from tests.soak.model import CHANGE, DELETE, Call, Entry, Records
from tests.soak.worker_history import MACHINE

#: Harm that began so many seconds before a message was sent is left out.
BEFORE = 20.0
LOG_LINES = 16
#: Longer delays of an answer are shown, in seconds.
SLOW = 0.1
#: Of equal tries, one is shown per so many seconds.
REPEATED = 1.0


def trace(message: Message, records: Records) -> str:
    """Return everything that is known about a message, in chronological order."""
    began = message.sent.started
    lines = [(began, message.sent.worker, f"sends {message.task} to {message.queue.name}")]
    for delivery in message.deliveries:
        call = delivery.receive
        how = "" if delivery.entry.told else ", but gets no answer"
        lines.append(
            (
                call.done,
                call.worker,
                f"receives it for {delivery.timeout} s, #{delivery.count}{how}{_call(call)}",
            )
        )
        if call.ended - call.done > SLOW:
            lines.append((call.ended, call.worker, f"gets the answer with #{delivery.count}"))
        for change, entry in delivery.changes + delivery.deletes:
            lines.append((change.started, change.worker, _change(change, entry, delivery.count)))
    for run in message.runs:
        lines.append((run.start, run.worker, f"starts it, #{run.count}, in process {run.pid}"))
        if run.outcome:
            lines.append((run.ended, run.worker, f"{run.outcome}s it, #{run.count}"))
    lines += [(note.at, note.worker, "discards it: expired") for note in message.expired]
    workers = {delivery.worker for delivery in message.deliveries}
    end = max(at for at, _, _ in lines) + 10
    for harm in records.harms:
        if harm.what in MACHINE:
            continue
        if harm.worker in workers | {""} and began - BEFORE < harm.at < end:
            until = f" until {harm.until - began:+.3f}" if harm.until < math.inf else ""
            pid = f" {harm.pid}" if harm.pid else ""
            lines.append((harm.at, harm.worker or "-", f"! {harm.what}{pid}{until}"))
    for name in workers:
        if records.workers[name].ended < end:
            lines.append((records.workers[name].ended, name, "! has ended"))
    told = [f"{at - began:+9.3f}  {who:5} {what}" for at, who, what in _condensed(sorted(lines))]
    about = [
        f"{name}: {records.workers[name].settings}; waited for a CPU for "
        f"{_starved(records, name, began, end):.1f} of {end - began:.0f} s"
        for name in sorted(workers)
    ]
    logs = [line for name in sorted(workers) for line in _log(records, name, message)]
    head = f"message {message.message_id}, task {message.task_id}"
    return "\n".join([head, *told, *about, *logs])


def _condensed(lines: list[tuple[float, str, str]]) -> Iterable[tuple[float, str, str]]:
    """Return the lines without those that only repeat an earlier try of a worker."""
    last: dict[tuple[str, str], float] = {}
    for at, who, what in lines:
        is_repeated = "not done" in what
        kind = (who, what.split(" until")[0])
        if not is_repeated or at - last.get(kind, -math.inf) > REPEATED:
            last[kind] = at
            yield at, who, what


def _starved(records: Records, name: str, since: float, until: float) -> float:
    return sum(
        harm.until - harm.at
        for harm in records.harms
        if harm.what == "starved" and harm.worker == name and since < harm.at < until
    )


def _call(call: Call) -> str:
    return f" [{call.fault}]" if call.fault else ""


def _change(call: Call, entry: Entry, count: int) -> str:
    what = "deletes" if call.operation == DELETE else f"hides for {entry.timeout} s"
    if call.operation == CHANGE and not entry.timeout:
        what = "releases"
    done = "done" if entry.done else "not done"
    told = "" if entry.told is entry.done else ", no answer"
    late = (
        f" at {call.done - call.started:+.2f}" if 0.1 < call.done - call.started < math.inf else ""
    )
    return f"{what} #{count}: {done}{late}{told}{_call(call)}"


def _log(records: Records, name: str, message: Message) -> Iterable[str]:
    log = Path(records.workers[name].log)
    if not log.is_file():
        return []
    named = [
        f"{name} | {line}"
        for line in log.read_text(errors="replace").splitlines()
        if message.message_id in line or message.task_id in line
    ]
    half = LOG_LINES // 2
    return named if len(named) <= LOG_LINES else [*named[:half], f"{name} | ...", *named[-half:]]

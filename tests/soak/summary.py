"""A soak in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.soak.audit import Verdict
from tests.soak.model import Records
from tests.soak.shares import shares
from tests.soak.worker_history import MACHINE

#: The width of the name column, in characters.
WIDTH = 60


def summarize(verdicts: Iterable[Verdict], records: Records) -> str:
    """Return tables of what happened to the messages and what was done to the workers."""
    verdicts = list(verdicts)
    calls = Counter(f"{call.operation}, {call.fault or 'no fault'}" for call in records.calls)
    harms = Counter(
        harm.what if harm.worker else f"weather: {harm.what}"
        for harm in records.harms
        if harm.what not in MACHINE
    )
    slow = {f"seconds {what}": round(_seconds(records, what)) for what in MACHINE}
    duplicates = Counter(
        cause for verdict in verdicts if verdict.duplicates for cause in verdict.causes
    )
    idle = Counter(why for verdict in verdicts for why in verdict.unexecuted)
    received = sum(len(verdict.message.deliveries) for verdict in verdicts)
    tables: dict[str, Mapping[str, object]] = {
        "messages by task": Counter(verdict.message.task for verdict in verdicts),
        "messages by outcome": Counter(verdict.account for verdict in verdicts),
        "task starts": {
            "all": sum(len(verdict.message.runs) for verdict in verdicts),
            "successes beyond the first": sum(verdict.duplicates for verdict in verdicts),
        },
        "why messages that were done again were started again": duplicates,
        "why tasks were started again, in all": Counter(
            cause for verdict in verdicts for cause in verdict.causes
        ),
        "why messages were received again": Counter(
            cause for verdict in verdicts for cause in verdict.redeliveries
        ),
        f"receives without an execution, {idle.total()} of {received}": idle,
        "extra receives by cause of the table": shares(verdicts),
        "calls, without empty receives": calls,
        "workers": Counter(info.pool for info in records.workers.values()),
        "harm": {**dict(harms.most_common()), **slow},
    }
    return "\n".join(_table(title, rows) for title, rows in tables.items())


def _table(title: str, rows: Mapping[str, object]) -> str:
    sorted_rows = rows.most_common() if isinstance(rows, Counter) else rows.items()
    return "\n".join(
        [f"{title}:", *(f"  {name:{WIDTH}} {value:>6}" for name, value in sorted_rows)]
    )


def _seconds(records: Records, what: str) -> float:
    return sum(harm.until - harm.at for harm in records.harms if harm.what == what)

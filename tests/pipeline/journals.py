"""Small journals on the disk, as workers write them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import zstandard

from celery_sqs_heartbeat.journal.folder import closed_path, day_of, segment_path
from celery_sqs_heartbeat.pipeline.schema import Table
from tests.pipeline.builders import DAY, SECOND

_DAY_US = 86_400 * SECOND


class Worker:
    """Writes lines of one worker; a segment for each day."""

    def __init__(self, wid: str, started: int, **told: Any) -> None:
        self.wid = wid
        self.started = started
        self.lines: list[dict[str, Any]] = []
        self.write("worker-started", started, host="h", pid=1, concurrency=4, **told)

    def write(self, ev: str, ts: int, **fields: Any) -> None:
        self.lines.append({"v": 1, "ts": ts, "ev": ev, "wid": self.wid, **fields})

    def attempt(
        self,
        msg: str,
        rc: int,
        ts: int,
        seconds: float,
        end: str | None,
        *,
        queue: str = "work",
        cause: str | None = None,
        vt: int | None = None,
        **received: Any,
    ) -> None:
        """Receive a message, run its task for so long and end it by that event. None: never.

        Args:
            cause: Of the end.
            vt: Of the end: a release's delay.
            received: Further fields of the receive's line.
        """
        about = {
            "queue": queue,
            "msg": msg,
            "dlv": f"{self.wid}{msg}{rc}",
            "rc": rc,
            "task": "proj.add",
            "task_id": f"t-{msg}",
        }
        done = ts + round(seconds * SECOND)
        was = {"cause": "new" if rc == 1 else "redelivered", "vt": 60, "sent": ts, "first": ts}
        self.write("message-received", ts, **about, **was, **received)
        self.write("task-started", ts + 1000, **about)
        call = {"batch": 2, "lat_us": 9000}
        for at in range(ts + 30 * SECOND, done, 30 * SECOND):
            self.write("lease-extended", at, **about, vt=60, slack_us=30 * SECOND, **call)
        if end is not None:
            why = {name: it for name, it in (("cause", cause), ("vt", vt)) if it is not None}
            self.write(end, done + 5000, **about, ended_us=5000, **call, **why)

    def segments(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield each day's lines, numbered."""
        days: dict[str, list[dict[str, Any]]] = {}
        for seq, line in enumerate(sorted(self.lines, key=lambda each: int(each["ts"])), 1):
            mono = line["ts"] - self.started
            days.setdefault(day_of(line["ts"]), []).append({**line, "seq": seq, "mono": mono})
        yield from days.items()


def write_segment(
    folder: Path, day: str, wid: str, lines: list[dict[str, Any]], end: str = ""
) -> None:
    """Write a closed segment of these lines, and append other bytes."""
    path = closed_path(folder / segment_path(day, wid, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines) + end
    path.write_bytes(zstandard.compress(text.encode()))


def some_workers(seed: int, days: int = 3) -> list[Worker]:
    """Return workers with messages at random; many about midnight, some seen twice."""
    random_ = random.Random(seed)
    workers = [
        Worker(f"w{seed}-{n}", DAY + n, versions={"celery-sqs-heartbeat": "1"}) for n in range(2)
    ]
    ends = ["message-deleted"] * 5 + ["message-released", "lease-lost", None]
    for number in range(14 * days):
        midnight = DAY + random_.randrange(1, days + 1) * _DAY_US
        ts = midnight - random_.randrange(_DAY_US if number % 2 else 600 * SECOND)
        end = random_.choice(ends)
        worker, other = random_.sample(workers, 2)
        seconds = random_.uniform(1, 900)
        msg = f"m{seed}-{number}"
        worker.attempt(msg, 1, ts, seconds, end)
        if end != "message-deleted" or random_.random() < 0.3:
            later = random_.choice([40 * SECOND, 1000 * SECOND, _DAY_US])
            if ts + later < DAY + days * _DAY_US:
                other.attempt(msg, 2, ts + later, 20, "message-deleted")
    return [*workers, grouped_worker(seed, days)]


def grouped_worker(seed: int, days: int = 1, begin: int = DAY) -> Worker:
    """Return a worker with a group of a FIFO queue: one message fails, one waits behind it.

    Args:
        days: It does so about the end of each of so many days.
        begin: The first day's.
    """
    worker = Worker(f"w{seed}-fifo", begin + 3, versions={"celery-sqs-heartbeat": "1"})
    for day in range(days):
        ts = begin + (day + 1) * _DAY_US - 40 * SECOND
        name, number = f"m{seed}-{day}", 100 + 10 * day
        failing = {"queue": "orders.fifo", "grp": "A", "max_rc": 3, "sn": str(number)}
        behind = {**failing, "sn": str(number + 1)}
        released = {"end": "message-released", "vt": 5}
        worker.attempt(f"{name}-1", 1, ts, 20, cause="failed", **released, **failing)
        worker.attempt(f"{name}-2", 1, ts, 20, cause="group stopped", **released, **behind)
        worker.attempt(f"{name}-1", 2, ts + 30 * SECOND, 20, "message-deleted", **failing)
        worker.attempt(f"{name}-2", 2, ts + 60 * SECOND, 20, "message-deleted", **behind)
    return worker


def write_all(folder: Path, workers: list[Worker]) -> Path:
    for worker in workers:
        for day, lines in worker.segments():
            write_segment(folder, day, worker.wid, lines)
    return folder


def rows_in(warehouse: Path, tables: Iterable[Table]) -> dict[str, list[str]]:
    """Return the rows of a warehouse's tables, read without Spark: that takes no job."""
    return {
        table.name: sorted(
            str(sorted(row.items()))
            for row in pyarrow.parquet.read_table(warehouse / table.name).to_pylist()
        )
        for table in tables
    }

"""A warehouse made by hand for the report: a few rows in each table."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.report.findings import Findings, collect
from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from tests.pipeline.builders import DAY, MINUTE, SECOND, frame_of

DT = datetime.date(2026, 3, 14)


TASK = "shop.pay"


@functools.cache
def findings(spark: SparkSession) -> Findings:
    """Return what the report finds in these tables."""
    return collect(cast(Warehouse, Tables(spark, _rows(TASK))))


def no_findings(spark: SparkSession) -> Findings:
    """Return what it finds in empty ones."""
    return collect(cast(Warehouse, Tables(spark, {})))


class Tables:
    """Stands in for a warehouse that holds these rows: nothing is written."""

    def __init__(self, spark: SparkSession, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        self._spark = spark
        self._rows = rows

    def read(self, table: Table, *days: datetime.date | None) -> DataFrame:
        del days
        base = {"dt": DT, "queue": f"q-{TASK}", "task": TASK}
        shared = {name: value for name, value in base.items() if name in table.names}
        rows = ({**shared, **row} for row in self._rows.get(table.name, ()))
        return frame_of(self._spark, table, rows)


def named(found: Any, name: str) -> Any:
    """Return the same with another name wherever the task's was part of a text."""
    if isinstance(found, str):
        return found.replace(TASK, name)
    if isinstance(found, Mapping):
        return {key: named(value, name) for key, value in found.items()}
    if isinstance(found, Sequence):
        return [named(each, name) for each in found]
    if isinstance(found, Findings):
        return Findings(**{key: named(getattr(found, key), name) for key in found.__slots__})
    return found


def _rows(task: str) -> dict[str, list[dict[str, Any]]]:
    attempt = {"rc": 1, "extensions": 2, "failures": 1, "received": DAY, "last_event": DAY + SECOND}
    duplicate = {
        "msg": f"m-{task}",
        "first_wid": "w1",
        "second_wid": "w2",
        "second_started": DAY + MINUTE,
        "overlap_us": 90 * SECOND,
        "both_succeeded": True,
        "evidence": f"{task}: keeper 41 s late",
    }
    failed = {
        "msg": "m2",
        "failed": DAY,
        "is_censored": False,
        "is_dead_letter": False,
        "promised_us": 30 * SECOND,
    }
    stop = {
        "queue": "orders.fifo",
        "grp": f"A-{task}",
        "stopped_at": DAY,
        "attempts": 3,
        "waiting": 1,
        "outcome": "succeeded",
    }
    candidate = {
        "task": None,
        "interval": 10.0,
        "max_lease": 43_200.0,
        "messages": 5_000,
        "confidence": "high",
        "reason": f"{task} runs for 3 s.",
        "risk": 1e-6,
        "least_risk": 6e-4,
        "objective": 0.1,
    }
    return {
        "attempts": [
            {
                **attempt,
                "msg": f"m{n}",
                "wid": f"w{n % 3}",
                "ended_as": "running" if end == "waiting" else end,
                "started": None if end in ("waiting", "released") else DAY,
                "wait_us": None if end in ("waiting", "released") else 0,
                "cause": "shutdown" if end == "released" else None,
                # Two receives of it are in no journal.
                "rc": 3 if end == "lost" else 1,
            }
            for n, end in enumerate(
                ["deleted"] * 3 + ["waiting"] * 3 + ["running", "abandoned", "released", "lost"]
            )
        ],
        "workers": [
            {"wid": "w1", "first_seen": DAY, "first_seq": 1, "last_seq": 50, "lines": 48},
            {
                "wid": "w1",
                "first_seen": DAY + 1,
                "first_seq": 52,
                "last_seq": 93,
                "lines": 42,
                "late_count": 1,
            },
        ],
        "duplicates": [
            {**duplicate, "cause": cause}
            for cause in ["keeper-starved"] * 3 + ["died-after-success", "released-while-running"]
        ],
        "recoveries": [
            {
                **failed,
                "ended_as": "abandoned",
                "recovery_us": 41 * SECOND,
                "excess_us": 11 * SECOND,
            },
            {**failed, "ended_as": "released", "recovery_us": 2 * SECOND, "excess_us": -SECOND},
            {**failed, "ended_as": "released", "is_dead_letter": True},
            {
                **failed,
                "msg": "m-behind",
                "ended_as": "released",
                "cause": "group stopped",
                "recovery_us": 900 * SECOND,
                "excess_us": 900 * SECOND,
            },
            {
                **failed,
                "ended_as": "lost",
                "is_censored": True,
                "recovery_us": 7 * SECOND,
                "excess_us": -23 * SECOND,
            },
        ],
        "group_stops": [
            {**stop, "msg": "m7", "seconds": 90.0, "resumed_at": DAY + 90 * SECOND},
            {**stop, "msg": "m8", "seconds": 600.0, "outcome": "dead letter", "waiting": 2},
            {**stop, "msg": "m9", "seconds": 30.0, "outcome": "unknown"},
            {**stop, "msg": "m6", "grp": f"B-{task}", "seconds": 40.0, "resumed_at": DAY},
        ],
        "durations": [
            {
                "measure": measure,
                "vt": 30,
                "bin": schema_bin(mean) + offset,
                "spans": round(900 * math.exp(-((offset / 45) ** 2))) + 1,
                "censored": int(offset == 119),
                "sum_us": mean,
            }
            for measure, mean in (("run", 3 * SECOND), ("wait", SECOND // 20))
            for offset in range(-120, 160)
        ],
        "in_flight": [
            {
                "minute": DAY + n * MINUTE,
                "peak": round(40 + 30 * math.sin(n / 90)),
                "mean": 25 + 20 * math.sin(n / 90),
                "quota_share": (40 + 30 * math.sin(n / 90)) / 120_000,
                "slots": 32,
            }
            for n in range(600)
        ],
        "calls": [
            {
                "version": "1.0",
                "kind": kind,
                "calls": calls,
                "entries": entries,
                "failed": 1,
                "cost_usd": calls * 4e-7,
                "saved_usd": (entries - calls) * 4e-7,
            }
            for kind, calls, entries in (
                ("receive", 90_000.0, 700_000),
                ("delete", 80_000.0, 690_000),
                ("extend", 9_000.5, 40_000),
            )
        ],
        "recommendations": [
            {
                **candidate,
                "rank": rank,
                "visibility_timeout": timeout,
                "threshold": timeout / 3,
                "calls_per_1000": 90_000 / timeout,
                "recovery_s": timeout * 0.7,
            }
            for rank, timeout in (
                (1, 20),
                (2, 30),
                (0, 60),
                (3, 120),
                (4, 240),
                (5, 600),
                (-1, 300),
            )
        ],
        "rejects": [{"file": f"dt=2026-03-14/{task}", "reason": "corrupt line", "lines": 2}],
    }


def schema_bin(microseconds: int) -> int:
    return math.floor(math.log(microseconds) / math.log(schema.RATIO))

"""Measurements, each in its own process: no JVM is warm, and no memory is in use."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyspark.sql import SparkSession

from benchmarks.pipeline import duckdb_tables
from benchmarks.pipeline import spark as jobs
from benchmarks.pipeline.data import Data, events_path, is_made, journal_path
from benchmarks.pipeline.figures import Run
from benchmarks.pipeline.jvm import Watch
from benchmarks.pipeline.mismatch import mismatches
from celery_sqs_heartbeat.pipeline.engine.session import new_session
from celery_sqs_heartbeat.pipeline.engines import engine_of
from celery_sqs_heartbeat.pipeline.options import SPARK

P = ParamSpec("P")
R = TypeVar("R")


def new_process() -> ProcessPoolExecutor:
    """Return an executor with one new process, which exits with the context."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def fresh(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a new process, which then exits."""
    with new_process() as process:
        return process.submit(function, *args, **kwargs).result()


def events_of(folder: Path, size: int, shape: str) -> Path:
    """Return a warehouse with events. Make it if it does not exist."""
    path = events_path(folder, size, shape)
    if not is_made(path):
        with _Session() as spark:
            Data(spark, folder).events(size, shape)
    return path


def journal_of(folder: Path, size: int, *, with_skew: bool) -> Path:
    """Return a journal. Make it if it does not exist."""
    path = journal_path(folder, size, with_skew=with_skew)
    if not path.exists():
        with _Session() as spark:
            Data(spark, folder).journal(size, with_skew=with_skew)
    return path


def of_spark(events: Path, out: Path) -> Run:
    """Make the tables of a warehouse's events with Spark."""
    with _Session() as spark:
        return _measure(spark, lambda progress: jobs.make_tables(spark, events, out, progress), out)


def of_journal(journal: Path, out: Path) -> Run:
    """Make events and tables of a journal with Spark, as the daily job does."""
    with _Session() as spark:
        return _measure(spark, lambda progress: jobs.make_all(spark, journal, out, progress), out)


def of_duckdb(events: Path, out: Path) -> Run:
    """Make the tables of a warehouse's events with DuckDB."""
    began = time.process_time()
    wall: defaultdict[str, float] = defaultdict(float)
    for table, seconds in duckdb_tables.make_tables(events, out).items():
        wall[jobs.TITLES[table]] += seconds
    return Run(dict(wall), time.process_time() - began)


def of_sail(python: str, make: str, source: Path, out: Path) -> Run:
    """Make tables with Sail, in the environment that it needs.

    Args:
        python: The interpreter of that environment.
        make: The name of a function of `benchmarks.pipeline.spark`.
    """
    command = [python, "-m", "benchmarks.pipeline.sail", make, str(source), str(out)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout))


def events_in(journal: Path, out: Path) -> Path:
    """Return a new warehouse with the events of a journal."""
    with _Session() as spark:
        engine_of(SPARK).read_journal(spark, str(journal), str(out))
    return out


def each_of_spark(events: Path, out: Path) -> dict[str, float]:
    """Make the tables of a warehouse's events, one after another. Return the seconds of each.

    The session stays open for further calls in this process.
    """
    return dict(jobs.make_each(new_session("benchmark"), events, out))


def each_with_cpu(events: Path, out: Path) -> dict[str, tuple[float, dict[str, float]]]:
    """Do the same. Return the seconds, and the CPU seconds by kinds of Java's threads."""
    found = {}
    with _Session() as spark:
        watch = Watch(_pid_of(spark))
        before = watch.by_kind()
        for table, seconds in jobs.make_each(spark, events, out):
            after = watch.by_kind()
            found[table] = seconds, {kind: after[kind] - before[kind] for kind in after}
            before = after
        watch.stop()
    return found


def each_of_duckdb(events: Path, out: Path) -> dict[str, float]:
    """Do the same with DuckDB."""
    return dict(duckdb_tables.make_tables(events, out))


def compare(one: Path, other: Path) -> list[str]:
    """Return the differences between the tables of two warehouses."""
    return mismatches(one, other)


def _pid_of(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


class _Session:
    """A Spark session whose JVM exits before the context ends."""

    def __enter__(self) -> SparkSession:
        self._spark = new_session("benchmark")
        return self._spark

    def __exit__(self, *_: object) -> None:
        gateway = self._spark.sparkContext._gateway
        self._spark.stop()
        gateway.shutdown()
        # The JVM exits when its input ends.
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _measure(spark: SparkSession, make: Callable[[Callable[[str], None]], None], out: Path) -> Run:
    jvm = spark.sparkContext._jvm
    watch = Watch(_pid_of(spark))
    turns: list[tuple[str, float, float]] = []

    def note_turn(name: str) -> None:
        turns.append((name, time.monotonic(), watch.cpu()))

    make(note_turn)
    note_turn("end")
    kinds, peak = watch.by_kind(), watch.peak_mb()
    watch.stop()
    wall = {name: after[1] - began for (name, began, _), after in pairwise(turns)}
    first_table = next(cpu for name, _, cpu in turns if name == "workers")
    load = os.getloadavg()[0]
    return Run(
        wall=wall,
        cpu=turns[-1][2],
        reading_cpu=first_table,
        kinds=kinds,
        writing_cpu=jobs.writing_cpu(spark, out, watch.cpu),
        peak_mb=peak,
        heap_mb=jvm.java.lang.Runtime.getRuntime().maxMemory() / 2**20,
        load=load,
    )

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

from benchmarks import pipeline_duckdb, pipeline_spark
from benchmarks.pipeline_data import Data, events_path, is_made, journal_path
from benchmarks.pipeline_figures import Run
from benchmarks.pipeline_jvm import Watch
from benchmarks.pipeline_mismatch import mismatches
from celery_sqs_heartbeat.pipeline.engine.session import new_session

P = ParamSpec("P")
R = TypeVar("R")


def fresh(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a new process, which then exits."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


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
        return _measure(
            spark, lambda told: pipeline_spark.make_tables(spark, events, out, told), out
        )


def of_journal(journal: Path, out: Path) -> Run:
    """Make events and tables of a journal with Spark, as the daily job does."""
    with _Session() as spark:
        return _measure(spark, lambda told: pipeline_spark.make_all(spark, journal, out, told), out)


def of_duckdb(events: Path, out: Path) -> Run:
    """Make the tables of a warehouse's events with DuckDB."""
    began = time.process_time()
    wall: defaultdict[str, float] = defaultdict(float)
    for table, seconds in pipeline_duckdb.make_tables(events, out).items():
        wall[pipeline_spark.TITLES[table]] += seconds
    return Run(dict(wall), time.process_time() - began)


def of_sail(python: str, make: str, source: Path, out: Path) -> Run:
    """Make tables with Sail, in the environment that it needs.

    Args:
        python: The interpreter of that environment.
        make: The name of a function of `pipeline_spark`.
    """
    command = [python, "-m", "benchmarks.pipeline_sail", make, str(source), str(out)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout))


def compare(one: Path, other: Path) -> list[str]:
    """Return the differences between the tables of two warehouses."""
    return mismatches(one, other)


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
    watch = Watch(jvm.java.lang.ProcessHandle.current().pid())
    turns: list[tuple[str, float, float]] = []

    def told(name: str) -> None:
        turns.append((name, time.monotonic(), watch.cpu()))

    make(told)
    told("end")
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
        writing_cpu=pipeline_spark.writing_cpu(spark, out, watch.cpu),
        peak_mb=peak,
        heap_mb=jvm.java.lang.Runtime.getRuntime().maxMemory() / 2**20,
        load=load,
    )

"""Explains the difference to DuckDB, and projects a billion events a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.pipeline.data import EVEN
from benchmarks.pipeline.figures import Run
from benchmarks.pipeline.jvm import EXECUTORS
from benchmarks.pipeline.verdict import Pair, Pairs
from celery_sqs_heartbeat.pipeline.prices import COMPUTE_SECOND_USD

BILLION = 1_000_000_000
CLUSTER_CORES = 16
#: The part of the cores' time that is not lost to waiting for the last task, the network and S3.
EFFICIENCY = 0.7
#: A daily run reads the lines of its day and of the two days before. There are no later lines.
#: Some of its tables look back further.
DAYS_READ = 3


def difference(pair: Pair, sail: Run) -> Iterator[str]:
    """Return lines that break down Spark's CPU time, and compare it with DuckDB's and Sail's."""
    spark, duckdb = pair.own, pair.other
    yield f"  CPU: Spark {spark.cpu:.1f} s, Sail {sail.cpu:.1f} s, DuckDB {duckdb.cpu:.1f} s"
    yield (
        f"  cores busy: Spark {_busy(spark):.2f}, Sail {_busy(sail):.2f}, "
        f"DuckDB {_busy(duckdb):.2f}"
    )
    for kind, seconds in spark.kinds.items():
        yield f"  {kind:12} {seconds:7.1f} s  {seconds / max(spark.cpu, 1e-9):4.0%}"
    executors = spark.kinds.get(EXECUTORS, 0.0)
    yield (
        f"  more than DuckDB: {spark.cpu - duckdb.cpu:.1f} s, of which the executors use "
        f"{executors - duckdb.cpu:.1f} s more and everything else {spark.cpu - executors:.1f} s"
    )
    yield (
        f"  the executors spend about {spark.writing_cpu:.1f} s on writing Parquet"
        " (estimated by repeating the largest table's write)"
    )


def projection(pairs: Pairs, journals: Mapping[int, Pair]) -> Iterator[str]:
    """Return lines about a billion events a day, projected from the cost of one more event here."""
    evens = {size: pair for (size, shape), pair in pairs.items() if shape == EVEN}
    if not evens:
        return
    tables = _marginal({pair.events: pair.own.cpu for pair in evens.values()})
    reading = _marginal({pair.events: pair.own.reading_cpu for pair in journals.values()})
    yield (
        f"  CPU seconds per million events: tables {tables:.2f} (from {_sizes(evens)} events), "
        f"reading JSON {reading:.2f} (from {_sizes(journals) or 'no'} lines)"
    )
    if len(evens) < 2 or len(journals) < 2:
        yield "  only one size was measured, so compilation is included: far too much"
    for title, days in (
        ("each event once", 1),
        (f"a daily run, if every table read {DAYS_READ} days", DAYS_READ),
    ):
        core_hours = (tables + reading) * days * BILLION / 1e6 / 3600
        paid = core_hours / EFFICIENCY
        yield (
            f"  {title}: {core_hours:.1f} core hours, "
            f"{paid / CLUSTER_CORES:.2f} hours on {CLUSTER_CORES} cores, "
            f"${paid * 3600 * COMPUTE_SECOND_USD:.2f} a day"
        )
    yield (
        f"  Assumed: time grows in proportion to the events; cores are as fast as these, and "
        f"{EFFICIENCY:.0%} of their time is used;"
    )
    yield (
        f"  ${COMPUTE_SECOND_USD * 3600:.4f} for an hour of a core with 2 GB (AWS Fargate, list "
        "price). S3 requests and storage are not included."
    )


def _marginal(cpu_by_events: Mapping[int, float]) -> float:
    """Return the CPU seconds of a million more events. With one size, the mean of its events."""
    if not cpu_by_events:
        return 0.0
    few, many = min(cpu_by_events), max(cpu_by_events)
    if few == many:
        return cpu_by_events[few] / few * 1e6
    return max(cpu_by_events[many] - cpu_by_events[few], 0.0) / (many - few) * 1e6


def _busy(run: Run) -> float:
    return run.cpu / run.seconds


def _sizes(sizes: Mapping[int, Pair]) -> str:
    return " to ".join(f"{sizes[size].events:,}" for size in sorted(sizes))

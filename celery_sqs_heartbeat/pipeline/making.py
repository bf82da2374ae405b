"""How some days of each table are made of the tables before it; `jobs` tells of which days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.days import Days
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tables.in_flight import in_flight_of
from celery_sqs_heartbeat.pipeline.tables.recommendations import recommendations_of
from celery_sqs_heartbeat.pipeline.tables.recoveries import recoveries_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from celery_sqs_heartbeat.pipeline.warehouse import Warehouse

#: What a worker's first line told, and no other does.
_TOLD_AT_START = ("host", "pid", "node", "pool", "concurrency", "settings", "versions")


@dataclass(frozen=True, slots=True)
class Sources:
    """The tables as the makers read them: some days before and after those that are made."""

    warehouse: Warehouse
    lookback: int

    def read(self, table: Table, days: Days, before: int = 0, after: int = 0) -> DataFrame:
        """Return a table's rows of the days and of those around them."""
        wider = days.grown(before, after)
        return self.warehouse.read(table, wider.first, wider.last)

    def workers(self, days: Days, before: int = 0, after: int = 0) -> DataFrame:
        """Return the workers that wrote lines in these days, as far as those tell.

        Of one that started earlier, what it told at its start is from the table of workers.
        """
        seen = workers_of(self.read(schema.EVENTS, days, before, after))
        earlier = self.warehouse.read(schema.WORKERS, last=days.last).groupBy("wid")
        told = earlier.agg(*(F.any_value(n, True).alias(f"_{n}") for n in _TOLD_AT_START))
        known = {name: F.coalesce(name, f"_{name}") for name in _TOLD_AT_START}
        return seen.join(told, "wid", "left").withColumns(known).select(*schema.WORKERS.names)


def _workers(sources: Sources, days: Days) -> DataFrame:
    around = sources.lookback
    return workers_of(sources.read(schema.EVENTS, days, around, around))


def _attempts(sources: Sources, days: Days) -> DataFrame:
    return attempts_of(sources.read(schema.EVENTS, days, 1, 1), sources.workers(days, 1, 1))


def _duplicates(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    return duplicates_of(
        sources.read(schema.ATTEMPTS, days, back),
        sources.read(schema.EVENTS, days, back, 1),
        sources.workers(days, back, 1),
    )


def _recoveries(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    return recoveries_of(
        sources.read(schema.ATTEMPTS, days, 1, back), sources.workers(days, 1, back)
    )


def _durations(sources: Sources, days: Days) -> DataFrame:
    return durations_of(sources.read(schema.ATTEMPTS, days))


def _in_flight(sources: Sources, days: Days) -> DataFrame:
    return in_flight_of(sources.read(schema.ATTEMPTS, days, 1), sources.workers(days, 1))


def _calls(sources: Sources, days: Days) -> DataFrame:
    return calls_of(sources.read(schema.EVENTS, days), sources.workers(days))


def _recommendations(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    recommendations = recommendations_of(
        sources.read(schema.DURATIONS, days, back),
        sources.read(schema.ATTEMPTS, days, back),
        sources.read(schema.EVENTS, days, back),
        sources.workers(days, back),
    )
    # Of the run's last day, also where that has no attempts.
    return recommendations.withColumn(PARTITION, F.lit(days.last))


MAKERS: Mapping[Table, Callable[[Sources, Days], DataFrame]] = {
    schema.WORKERS: _workers,
    schema.ATTEMPTS: _attempts,
    schema.DUPLICATES: _duplicates,
    schema.RECOVERIES: _recoveries,
    schema.DURATIONS: _durations,
    schema.IN_FLIGHT: _in_flight,
    schema.CALLS: _calls,
    schema.RECOMMENDATIONS: _recommendations,
}

#: Which tables are made side by side: each after those that it is made of.
TURNS = (
    (schema.WORKERS,),
    (schema.ATTEMPTS, schema.CALLS),
    (schema.DURATIONS, schema.RECOVERIES),
    (schema.DUPLICATES, schema.IN_FLIGHT, schema.RECOMMENDATIONS),
)

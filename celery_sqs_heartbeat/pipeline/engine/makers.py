"""Makes days of each table from the tables before it. `jobs` defines the days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.common.days import Days
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Table
from celery_sqs_heartbeat.pipeline.storage.kept_frames import FrameCache
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse, between
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.calls import calls_of
from celery_sqs_heartbeat.pipeline.tables.deliveries import deliveries_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from celery_sqs_heartbeat.pipeline.tables.in_flight import in_flight_of
from celery_sqs_heartbeat.pipeline.tables.recoveries import recoveries_of
from celery_sqs_heartbeat.pipeline.tables.workers import with_reported, workers_of
from celery_sqs_heartbeat.pipeline.tuning.recommendations import recommendations_of


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a table: other tables, with some days before and after those that are made."""

    warehouse: Warehouse
    lookback: int
    kept: FrameCache

    def read(self, table: Table, days: Days, before: int = 0, after: int = 0) -> DataFrame:
        """Return a table's rows of the days and of days around them."""
        wider = days.grown(before, after)
        return self.warehouse.read(table, wider.first, wider.last)

    def workers(self, days: Days, before: int = 0, after: int = 0) -> DataFrame:
        """Return the workers of these days, with the facts of their starts."""
        wider = days.grown(before, after)
        until_then = self.warehouse.read(schema.WORKERS, last=wider.last)
        return with_reported(between(until_then, first=wider.first), until_then)


def _workers(sources: Sources, days: Days) -> DataFrame:
    return workers_of(sources.read(schema.EVENTS, days))


def _attempts(sources: Sources, days: Days) -> DataFrame:
    events, workers = sources.read(schema.EVENTS, days, 1, 1), sources.workers(days, 1, 1)

    def fold(rows: DataFrame) -> DataFrame:
        return sources.kept.in_batches(deliveries_of, rows, workers)

    return attempts_of(events, workers, fold)


def _duplicates(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    return duplicates_of(
        sources.read(schema.ATTEMPTS, days, back),
        sources.read(schema.EVENTS, days, back, 1),
        sources.workers(days, back, 1),
        sources.read(schema.REJECTS, days, back),
        sources.kept.keep,
    )


def _recoveries(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    return recoveries_of(
        sources.read(schema.ATTEMPTS, days, 1, back), sources.workers(days, 1, back)
    )


def _group_stops(sources: Sources, days: Days) -> DataFrame:
    back = sources.lookback
    # It reads so many days before, because a message's first stop counts.
    return group_stops_of(
        sources.read(schema.ATTEMPTS, days, 1 + back, back),
        sources.workers(days, 1 + back, back),
        sources.kept.keep,
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
    # They belong to the run's last day, even if that has no attempts.
    return recommendations.withColumn(PARTITION, F.lit(days.last))


#: In an order in which each table comes after those that it needs.
MAKERS: Mapping[Table, Callable[[Sources, Days], DataFrame]] = {
    schema.WORKERS: _workers,
    schema.ATTEMPTS: _attempts,
    schema.DUPLICATES: _duplicates,
    schema.RECOVERIES: _recoveries,
    schema.GROUP_STOPS: _group_stops,
    schema.DURATIONS: _durations,
    schema.IN_FLIGHT: _in_flight,
    schema.CALLS: _calls,
    schema.RECOMMENDATIONS: _recommendations,
}

#: The tables that each needs, in addition to `events`. Tables that are not here need no other.
NEEDS: Mapping[Table, tuple[Table, ...]] = {
    schema.ATTEMPTS: (schema.WORKERS,),
    schema.DUPLICATES: (schema.ATTEMPTS,),
    schema.RECOVERIES: (schema.ATTEMPTS,),
    schema.GROUP_STOPS: (schema.ATTEMPTS,),
    schema.DURATIONS: (schema.ATTEMPTS,),
    schema.IN_FLIGHT: (schema.ATTEMPTS,),
    schema.CALLS: (schema.WORKERS,),
    schema.RECOMMENDATIONS: (schema.DURATIONS,),
}

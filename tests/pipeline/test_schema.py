from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.journal.checking import TABLE_NAMES
from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.schema import EVENTS, PARTITION, TABLES, Table
from tests.pipeline.builders import frame_of


def test_the_events_have_each_field_of_the_journal_with_its_type() -> None:
    fields = {field.name: field.type for field in FIELDS}
    columns = {column.name: column.type for column in EVENTS.columns}
    assert columns == {**fields, "skew_us": "bigint"}


@pytest.mark.thorough
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_spark_takes_each_table_s_schema(spark: SparkSession, table: Table) -> None:
    assert tuple(frame_of(spark, table, []).columns) == table.names
    assert table.names[-1] == PARTITION
    assert all(column.meaning for column in table.columns)


def test_the_journal_knows_a_warehouse_by_its_tables() -> None:
    assert set(TABLE_NAMES) <= set(TABLES)

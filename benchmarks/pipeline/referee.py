"""Makes the three hardest tables with DuckDB's SQL, and compares them with Spark's.

The two programs share no line: what both find is what the journals mean.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from duckdb import DuckDBPyConnection, connect

from benchmarks.pipeline.sql_attempts import ATTEMPTS
from benchmarks.pipeline.sql_group_stops import GROUP_STOPS
from benchmarks.pipeline.sql_in_flight import IN_FLIGHT
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Column, Table

#: In an order in which each table follows its sources.
QUERIES: Mapping[Table, str] = {
    schema.ATTEMPTS: ATTEMPTS,
    schema.GROUP_STOPS: GROUP_STOPS,
    schema.IN_FLIGHT: IN_FLIGHT,
}
#: Doubles are equal if this many digits are: their sums depend on the order of rounding.
_DIGITS = 6
_TYPES = {"string": "VARCHAR", "map<string,string>": "MAP(VARCHAR, VARCHAR)"}


def make_tables(warehouse: Path, out: Path) -> dict[str, float]:
    """Make the tables of one warehouse's events and workers, and return the seconds of each."""
    seconds = {}
    with connect() as connection:
        connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        for source in (schema.EVENTS, schema.WORKERS):
            _show(connection, source, warehouse)
        for table, query in QUERIES.items():
            began = time.monotonic()
            columns = [
                f'"{each.name}"::{_type_of(each)} AS "{each.name}"' for each in table.columns
            ]
            folder = out / table.name
            folder.mkdir(parents=True)
            connection.execute(
                f"COPY (SELECT {', '.join(columns)}, {PARTITION} FROM ({query})) TO '{folder}' "
                f"(FORMAT parquet, COMPRESSION zstd, PARTITION_BY ({PARTITION}), OVERWRITE)"
            )
            _show(connection, table, out)
            seconds[table.name] = time.monotonic() - began
    return seconds


def differences(one: Path, other: Path) -> list[str]:
    """Return which rows of the three tables are in only one of two warehouses."""
    found = []
    with connect() as connection:
        for table in QUERIES:
            for here, there in ((one, other), (other, one)):
                rows = f"{_rows_of(here, table)} EXCEPT ALL {_rows_of(there, table)}"
                lacking = connection.execute(rows).fetchall()
                if lacking:
                    found.append(
                        f"{table.name}: {len(lacking):,} rows in {here}, not in {there}, such as "
                        f"{lacking[0]}"
                    )
    return found


def _show(connection: DuckDBPyConnection, table: Table, warehouse: Path) -> None:
    """Create a view with a table's name on its files."""
    connection.execute(f"CREATE VIEW {table.name} AS FROM {_parquet_of(warehouse, table)}")


def _rows_of(warehouse: Path, table: Table) -> str:
    """Return a query for a table's rows, all of the contract's types, doubles rounded."""
    columns = ", ".join([*map(_comparable, table.columns), PARTITION])
    if any((warehouse / table.name).glob(f"{PARTITION}=*/*.parquet")):
        return f"SELECT {columns} FROM {_parquet_of(warehouse, table)}"
    nothing = ", ".join(f'NULL AS "{name}"' for name in table.names)
    return f"SELECT {columns} FROM (SELECT {nothing}) WHERE FALSE"


def _comparable(column: Column) -> str:
    value = f'"{column.name}"::{_type_of(column)}'
    if column.type == "double":
        # Adding zero turns a negative zero into zero.
        value = f"printf('%.{_DIGITS}g', {value} + 0.0)"
    return f'{value} AS "{column.name}"'


def _parquet_of(warehouse: Path, table: Table) -> str:
    """Return the expression that reads a table of a warehouse."""
    files = warehouse / table.name / f"{PARTITION}=*" / "*.parquet"
    return (
        f"read_parquet('{files}', hive_partitioning = TRUE, hive_types = {{'{PARTITION}': DATE}})"
    )


def _type_of(column: Column) -> str:
    return _TYPES.get(column.type, column.type)


if __name__ == "__main__":
    make_tables(*map(Path, sys.argv[1:3]))

"""Compares two programs' tables of the same events: all tables of two warehouses, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection, connect

from benchmarks.pipeline.duckdb_tables import QUERIES
from benchmarks.pipeline.sql import parquet_of, type_of
from celery_sqs_heartbeat.pipeline.schema import PARTITION, Column, Table

#: Doubles are equal if this many digits are: their sums depend on the order of rounding.
_DIGITS = 6


def mismatches(one: Path, other: Path) -> list[str]:
    """Return which rows of any table are in only one of the two warehouses."""
    found: list[str] = []
    with connect() as connection:
        connection.execute("SET threads = 2")
        for table in QUERIES:
            rows, others = _rows_of(one, table), _rows_of(other, table)
            if _sums(connection, rows) != _sums(connection, others):
                found += _missing(connection, table, rows, others, f"in {one}, not in {other}")
                found += _missing(connection, table, others, rows, f"in {other}, not in {one}")
    return found


def _rows_of(warehouse: Path, table: Table) -> str:
    """Return a query for a table's rows, all of the contract's types, doubles rounded."""
    columns = ", ".join([*map(_comparable, table.columns), PARTITION])
    if any((warehouse / table.name).glob(f"{PARTITION}=*/*.parquet")):
        return f"SELECT {columns} FROM {parquet_of(warehouse, table)}"
    nothing = ", ".join(f'NULL AS "{name}"' for name in table.names)
    return f"SELECT {columns} FROM (SELECT {nothing}) WHERE FALSE"


def _comparable(column: Column) -> str:
    value = f'"{column.name}"::{type_of(column)}'
    if column.type == "double":
        # Adding zero turns a negative zero into zero.
        value = f"printf('%.{_DIGITS}g', {value} + 0.0)"
    return f'{value} AS "{column.name}"'


def _sums(connection: DuckDBPyConnection, rows: str) -> tuple[Any, ...]:
    """Return the number of rows and the sum of their hashes. They do not depend on the order."""
    (sums,) = connection.execute(
        f"SELECT count(*), sum(hash(each)) FROM ({rows}) AS each"
    ).fetchall()
    return sums


def _missing(
    connection: DuckDBPyConnection, table: Table, rows: str, others: str, where: str
) -> list[str]:
    """Return how many rows the others lack, and one of them, if they lack any.

    Only the hashes are compared: the texts of millions of rows would not fit into memory.
    """
    hashes = "SELECT hash(each) AS hash FROM ({}) AS each"
    ((count, example),) = connection.execute(
        "SELECT count(*), any_value(hash) "
        f"FROM ({hashes.format(rows)} EXCEPT ALL {hashes.format(others)})"
    ).fetchall()
    if not count:
        return []
    ((row,),) = connection.execute(
        f"SELECT each FROM ({rows}) AS each WHERE hash(each) = ? LIMIT 1", [example]
    ).fetchall()
    return [f"{table.name}: rows {where}: {count:,}, such as {row}"]

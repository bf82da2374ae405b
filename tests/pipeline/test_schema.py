"""The tables and the causes of duplicates, as the page about the pipeline documents them."""

from __future__ import annotations

import re

import pytest

from celery_sqs_heartbeat.journal.checking import TABLE_NAMES
from celery_sqs_heartbeat.journal.fields import FIELDS
from celery_sqs_heartbeat.pipeline.schema import TABLES, Table
from celery_sqs_heartbeat.pipeline.tables.duplicates import CAUSES
from tests.support.markdown import ROOT

PAGE = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_page_has_each_column_or_refers_to_the_journal(table: Table) -> None:
    """A field of the journal has the same type here."""
    section = PAGE.partition(f"\n### `{table.name}`\n")[2].partition("\n### ")[0]
    (shared,) = re.findall(r"^Fields of the \[journal\].*: (.*)\.$", section, re.MULTILINE) or [""]
    fields = re.findall(r"`(\w+)`", shared)
    own = re.findall(r"^\| `(\w+)` \| .+ \|$", section, re.MULTILINE)
    assert sorted([*fields, *own]) == sorted(column.name for column in table.columns)
    types = {column.name: column.type for column in table.columns}
    assert [types[name] for name in fields] == [
        field.type for name in fields for field in FIELDS if field.name == name
    ]


def test_the_page_has_the_causes_that_the_report_names() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| .+ \|$", PAGE, re.MULTILINE)
    documented = [row for row in rows if row[0] in CAUSES]
    assert documented == [(name, cause.meaning) for name, cause in CAUSES.items()]


def test_the_journal_knows_a_warehouse_by_its_tables() -> None:
    assert set(TABLE_NAMES) <= set(TABLES)

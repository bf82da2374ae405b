"""Names that others choose are text everywhere on the page."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.pipeline import report
from celery_sqs_heartbeat.pipeline.report.page import render
from tests.pipeline.report_tables import findings, named

HARMLESS = "harmless"
#: Names of tasks and queues, which are a part of other texts, too.
HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "an end of the style": "</style><img src=x onerror=alert(1)>",
    "an end of an attribute": '" onmouseover="alert(1)',
    "an apostrophe": "' onfocus='alert(1)",
    "an entity": "&lt;b&gt;&amp;",
    "a template": "{{ it.caption }}{% raw %}{# #}",
    "a new line": "a\nb\r\nc",
    "a null byte": "a\x00b\x1bc",
    "another direction": "a\u202eb\u2066c\u200fd",
    "half a character": "a\ud800b",
}


class Parts(HTMLParser):
    """The page's elements with their attributes, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.values.append(data)

    def places_of(self, name: str) -> list[int]:
        """Return the numbers of the texts and attributes with this name in them."""
        return [number for number, value in enumerate(self.values) if name in value]


@pytest.fixture(scope="module")
def harmless(spark: SparkSession) -> Parts:
    return Parts(render(named(findings(spark), HARMLESS)))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_is_shown_as_it_is_and_changes_nothing_else(
    spark: SparkSession, harmless: Parts, name: str
) -> None:
    page = render(named(findings(spark), name))
    page.encode()
    found = Parts(page)
    assert found.elements == harmless.elements
    assert found.places_of(escaped(name)) == harmless.places_of(HARMLESS)
    assert page.count(name) == 0 or escaped(name) == name == unescape(name)


def test_each_section_is_among_those_that_show_names(harmless: Parts) -> None:
    assert len(harmless.places_of(HARMLESS)) > 50


def test_nothing_is_marked_as_safe() -> None:
    """Python passes only text, and no template treats any of it as markup."""
    folder = Path(report.__file__).parent
    templates = [*folder.rglob("*.j2")]
    assert len(templates) > 8
    for path in templates:
        source = path.read_text(encoding="utf-8").replace(" ", "")
        assert "|safe" not in source
        assert "autoescape" not in source
    for path in folder.rglob("*.py"):
        assert "Markup(" not in path.read_text(encoding="utf-8")


def test_unknown_values_are_a_dash(spark: SparkSession) -> None:
    found = findings(spark)
    rows = [{**row, "task": None} for row in found.duplicates]
    page = render(replace(found, duplicates=rows))
    assert '<td data-name="task">\N{EN DASH}</td>' in page

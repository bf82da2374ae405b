"""What the report says, from tables made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.cli.report import report
from celery_sqs_heartbeat.pipeline.days import Span
from celery_sqs_heartbeat.pipeline.report import failures, markup
from celery_sqs_heartbeat.pipeline.report.coverage import Coverage, covered
from celery_sqs_heartbeat.pipeline.report.page import render
from tests.pipeline.report_tables import findings, named, no_findings

EVIL = "<img src=x onerror='alert(1)'>\"\x00</style>"
VOID = {"meta", "link", "img"}


@pytest.fixture(scope="module")
def page(spark: SparkSession) -> str:
    return render(findings(spark))


@pytest.fixture(scope="module")
def evil_page(spark: SparkSession) -> str:
    return render(named(findings(spark), EVIL))


class Tags(HTMLParser):
    """Checks that what is opened is closed, and keeps what there is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.mark.parametrize(
    "said",
    [
        "3 workers received 10 messages 10 times",
        "5 pairs with evidence",
        "shop.pay: keeper 41 s late",
        "keeper-starved the thread that extends leases was held up",
        "give the worker more CPU",
        "released 30 s dead letter &ndash;",
        "lost 30 s 7 s and more",
        "outlived a visibility timeout of 30 s",
        "1 run had not ended",
        "At most 70 at once",
        "2.2 for each of the 32 slots",
        "179,000 calls cost $0.072",
        "Visibility timeout 60 s",
        "&lt; 0.0006",
        "3 lines of the journal are missing",
        "corrupt line",
    ],
)
def test_each_section_says_what_its_table_holds(page: str, said: str) -> None:
    assert said in words(page)


def test_the_page_is_well_formed_loads_nothing_and_runs_no_script(page: str) -> None:
    tags = Tags(page).seen
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in tags}
    sources = [attrs.get("href") or attrs.get("src") for _, attrs in tags]
    assert all(source.startswith(("#", "data:")) for source in sources if source)
    assert "url(" not in page
    assert "@import" not in page


def test_each_picture_has_a_name_and_tooltips(page: str) -> None:
    pictures = [attrs for tag, attrs in Tags(page).seen if tag == "svg"]
    assert pictures
    assert all(each["role"] == "img" and each["aria-label"] for each in pictures)
    assert page.count("<title>") > len(pictures)


def test_text_of_a_journal_is_never_taken_for_html(evil_page: str) -> None:
    tags = Tags(evil_page).seen
    assert "img" not in {tag for tag, _ in tags}
    assert not any(name.startswith("on") for _, attrs in tags for name in attrs)
    assert evil_page.count("</style>") == 1
    assert "\x00" not in evil_page
    assert "&lt;img src=x" in evil_page


def test_empty_tables_give_a_page_that_says_so(spark: SparkSession) -> None:
    said = words(render(no_findings(spark)))
    for each in (
        "No message was received",
        "nothing can be said about duplicates",
        "nothing to recover",
        "No task was run",
        "No message was in flight",
        "No call to SQS",
        "too little in these days",
        "There are no lines",
    ):
        assert each in said
    assert "No message was executed twice" not in said
    assert "Every line could be read" not in said


@pytest.mark.parametrize(
    ("microseconds", "said"),
    [
        (None, "&ndash;"),
        (0, "0 s"),
        (1500, "1.5 ms"),
        (-2_000_000, "&minus;2 s"),
        (5_400_000_000, "1.5 h"),
    ],
)
def test_spans_are_told_with_a_unit(microseconds: float | None, said: str) -> None:
    assert markup.span(microseconds) == said


#: By what the tables lack: the sums that say so, the days, and the page's first line.
COVERED = {
    "nothing": ({}, Span(), [13, 14], ["2 days with events: 2026-03-13 to 2026-03-14", "No gaps"]),
    "a day between": ({}, Span(), [13, 15], ["2 of 3 days with", "Gaps: no events of 2026-03-14."]),
    "days that were asked for": (
        {},
        Span(date(2026, 3, 10), date(2026, 3, 14)),
        [13],
        [
            "1 of 5 days with events: 2026-03-10 to 2026-03-14",
            "no events of 2026-03-10 to 2026-03-12, 2026-03-14.",
        ],
    ),
    "many days": (
        {},
        Span(),
        range(1, 30, 2),
        ["no events of 2026-03-02, 2026-03-04,", "2026-03-10, 9 more stretches."],
    ),
    "lines": ({"missing": 3}, Span(), [14], ["Gaps: 3 lines missing from the workers' numbering."]),
    "first lines": (
        {"before": 1},
        Span(),
        [14],
        ["Gaps: 1 line missing before the first line that"],
    ),
}


@pytest.mark.parametrize("lack", COVERED)
def test_the_first_line_says_what_the_page_covers(spark: SparkSession, lack: str) -> None:
    sums, span, days, said = COVERED[lack]
    found = replace(
        findings(spark),
        days=[date(2026, 3, day) for day in days],
        workers={"starts": 2, "missing": 0, "before": 0, **sums},
        rejects=[],
    )
    line = words(covered(found, Coverage(span=span, segments=7)))
    assert line.strip().startswith("Covers 2 workers, 7 segments of their journal, ")
    assert all(each in line.replace(" .", ".") for each in said)
    assert ("No gaps" in line) is (lack == "nothing")


def test_it_is_above_all_sections_and_counts_what_could_not_be_read(page: str) -> None:
    first = page.index("Covers 1 worker, tables made before, 1 day with events")
    assert first < page.index("<section")
    line = words(page[first : page.index("<section")])
    assert "3 lines missing from the workers' numbering" in line
    assert "2 lines or torn segments that can't be read" in line


@pytest.mark.parametrize(
    ("sums", "basis"),
    [
        ({}, "3 workers: 10 messages, received 10 times."),
        ({"missing": 3}, "10 times; what the missing lines would say is unknown"),
    ],
)
def test_an_all_clear_says_what_it_is_based_on(
    spark: SparkSession, sums: dict[str, int], basis: str
) -> None:
    about = {"missing": 0, "before": 0, **sums}
    found = replace(findings(spark), causes=[], duplicates=[], workers=about, rejects=[])
    said = words(failures.duplicates(found))
    assert said.startswith(" No message was executed twice, by what was read of ")
    assert basis in said


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "Missing argument 'JOURNAL_OR_WAREHOUSE'"),
        (["j", "--from", "2026-03-02", "--to", "2026-03-01"], "is after --to"),
        (["j", "--from", "yesterday"], "does not match the format"),
    ],
)
def test_wrong_options_are_told_before_spark_starts(arguments: list[str], fault: str) -> None:
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 2
    assert fault in result.output

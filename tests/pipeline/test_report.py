"""The text of the report, from tables made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from html import unescape
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.cli.report import report
from celery_sqs_heartbeat.common.days import Span
from celery_sqs_heartbeat.pipeline import options
from celery_sqs_heartbeat.pipeline.report import figures
from celery_sqs_heartbeat.pipeline.report.page import render
from celery_sqs_heartbeat.pipeline.report.queries import IN_NO_JOURNAL
from celery_sqs_heartbeat.pipeline.report.sections import overview
from celery_sqs_heartbeat.pipeline.report.sections.coverage import Coverage
from celery_sqs_heartbeat.pipeline.report.sections.run_times import TICKS
from celery_sqs_heartbeat.pipeline.tables.bins import bin_of, middle_of
from tests.pipeline.builders import SECOND
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
    """Checks that each opened element is closed, and collects them."""

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


def section(page: str, anchor: str) -> str:
    """Return the contents of a section, below its title."""
    inner = page[page.index(f'<section id="{anchor}"') :].partition("</h2>")[2]
    return inner.partition("</section>")[0]


def first_line(page: str) -> str:
    """Return the line that says what the page covers."""
    return page[page.index('<p class="covers">') :].partition("</p>")[0]


@pytest.mark.parametrize(
    "said",
    [
        "3 workers received 10 messages 10 times",
        "5 pairs with evidence",
        "shop.pay: keeper 41 s late",
        "keeper-starved the thread that extends leases was delayed",
        "give the worker more CPU",
        "released 30 s dead letter &ndash;",
        "lost 30 s 7 s and more",
        "took longer than a visibility timeout of 30 s",
        "1 run without an end",
        "running its task still ran at the end of the journal 1 ",
        "waiting received, and its task had not started at the end of the journal 3 ",
        "Workers that received something 3 ",
        "Failed extensions 10 ",
        "No task is known to have started in 3 of 9 receives. Each of them counts toward",
        "q-shop.pay in no journal SQS counted a receive that no journal has",
        "q-shop.pay shutdown its worker was stopped before the task started 1 11.1%",
        "5 executions are duplicates: they began although the one before had not failed.",
        "At most 70 at once, in the 3 min that began at 2026-03-14 02:03 UTC: 0.06% of SQS's quota",
        "2.2 for each of 32 slots",
        "orders.fifo A-shop.pay m8 shop.pay 3 4 1 10 min 12 min",
        "orders.fifo A-shop.pay shop.pay m9 unknown 3 1 30 s and more",
        "orders.fifo A-shop.pay shop.pay m8 dead letter 3 2 10 min",
        "4 stops one by one",
        "179,001 calls cost $0.072",
        "9,001 40,000 4.44",
        "Change to visibility timeout 60 s and threshold 20 s",
        "less than 1 of 1,666",
        "3 lines of the journal are missing",
        "corrupt line",
    ],
)
def test_each_section_says_what_its_table_holds(page: str, said: str) -> None:
    assert unescape(said) in unescape(words(page))


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


def test_text_of_a_journal_is_never_read_as_html(evil_page: str) -> None:
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
        "nothing is known about duplicates",
        "nothing to recover",
        "No task was run",
        "No message was in flight",
        "No call to SQS",
        "No message of a FIFO queue was received",
        "too little data on these days",
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
        (3, "&lt; 10 µs"),
        (89_400_000, "1 min 29 s"),
        (59_600_000, "1 min"),
        (999_990, "1 s"),
        (5_400_000_000, "1 h 30 min"),
        (7_199_000_000, "2 h"),
        (90_000_000_000, "1 d 1 h"),
    ],
)
def test_spans_are_shown_with_a_unit(microseconds: float | None, said: str) -> None:
    assert figures.span(microseconds) == unescape(said)


@pytest.mark.parametrize("seconds", [0.0000123, 0.0139, 45.0, 59.7, 89.4, 7_201.0, 100_000.0])
def test_quantiles_are_shown_as_no_less_than_any_span_that_they_count(seconds: float) -> None:
    shown = figures.at_most(middle_of(bin_of(seconds * SECOND)))
    sizes = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400}
    words = shown.replace(",", "").split()
    most = sum(float(n) * sizes[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert seconds <= most < seconds * 1.05


#: By what is missing in the tables: the sums that show it, the days, and the page's first line.
COVERED = {
    "nothing": ({}, Span(), [13, 14], ["2 days with events: 2026-03-13 to 2026-03-14", "No gaps"]),
    "a day between": ({}, Span(), [13, 15], ["2 of 3 days with", "Gaps: no events on 2026-03-14."]),
    "days that were asked for": (
        {},
        Span(date(2026, 3, 10), date(2026, 3, 14)),
        [13],
        [
            "1 of 5 days with events: 2026-03-10 to 2026-03-14",
            "no events on 2026-03-10 to 2026-03-12, 2026-03-14.",
        ],
    ),
    "many days": (
        {},
        Span(),
        range(1, 30, 2),
        ["no events on 2026-03-02, 2026-03-04,", "2026-03-10, 9 more stretches."],
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
    found = findings(spark)
    found = replace(
        found,
        days=[date(2026, 3, day) for day in days],
        workers={**found.workers, "starts": 2, "missing": 0, "before": 0, **sums},
        rejects=[],
    )
    line = unescape(words(first_line(render(found, Coverage(span=span, segments=7)))))
    assert line.strip().startswith("Covers 2 workers, 7 segments of their journal, ")
    assert all(each in line.replace(" .", ".") for each in said)
    assert ("No gaps" in line) is (lack == "nothing")


def test_it_is_above_all_sections_and_counts_what_could_not_be_read(page: str) -> None:
    first = page.index("Covers 1 worker, tables of a warehouse, 1 day with events")
    assert first < page.index("<section")
    line = unescape(words(page[first : page.index("<section")]))
    assert "3 lines missing from the workers' numbering" in line
    assert "2 lines that can't be read" in line
    assert "A restarted worker counts as one more." in line


@pytest.mark.parametrize(
    ("rejects", "said"),
    [
        ([("torn segment", 1)], "1 torn segment that can't be read"),
        ([("corrupt line", 1)], "1 line that can't be read"),
        (
            [("unknown event", 1), ("torn segment", 1), ("torn segment", 1), ("corrupt line", 2)],
            "3 lines and 2 torn segments that can't be read",
        ),
    ],
)
def test_lines_and_segments_that_can_not_be_read_are_counted_apart(
    spark: SparkSession, rejects: list[tuple[str, int]], said: str
) -> None:
    rows = [{"file": "x", "reason": reason, "lines": lines} for reason, lines in rejects]
    found = replace(findings(spark), rejects=rows)
    line = words(first_line(render(found, Coverage(span=Span(), segments=2))))
    assert f"; {said}." in unescape(line).replace(" .", ".")


def test_one_duplicate_and_one_missing_line_are_reported_in_the_singular(
    spark: SparkSession,
) -> None:
    found = findings(spark)
    found = replace(
        found, causes=[{**found.causes[-1], "pairs": 1}], workers={**found.workers, "missing": 1}
    )
    said = words(render(found))
    assert "1 execution is a duplicate: it began although the one before had not failed." in said
    assert "1 line of the journal is missing: the figures do not include it." in said


def test_no_entry_has_more_than_one_call_of_those_that_are_shown(spark: SparkSession) -> None:
    """One receive of 12 messages, of which 10 would be the most, was 1.2 calls: "1, 12, 10"."""
    calls = [{**findings(spark).calls[0], "kind": "receive", "calls": 1.2, "entries": 12}]
    said = words(section(render(replace(findings(spark), calls=calls)), "costs"))
    assert said.startswith(" 2 calls cost ")
    assert " receive 2 12 6 " in re.sub(r"receive, q-shop.pay: [$.\d]+ ", "", said)


def test_settings_that_are_kept_are_one_candidate_with_two_labels(spark: SparkSession) -> None:
    rows = [row for row in findings(spark).recommendations if row["rank"] != 0]
    (used,) = [row for row in rows if row["rank"] == -1]
    found = replace(findings(spark), recommendations=[*rows, {**used, "rank": 0}])
    said = words(section(render(found), "recommendations"))
    assert "Keep visibility timeout 300 s and threshold 100 s" in said
    assert said.count(" 300 s ") == 2
    assert "recommended , in use 300 s" in said


def test_slots_are_drawn_day_by_day_and_shown_for_the_peak(spark: SparkSession) -> None:
    rows = [
        {**row, "slots": 32 if number < 100 else 16}
        for number, row in enumerate(findings(spark).in_flight)
    ]
    found = replace(findings(spark), in_flight=rows)
    page = section(render(found), "in-flight")
    assert "for each of 32 slots" in page
    limit = page[page.index("line limit") :]
    heights = set(re.findall(r"[ML][\d.]+ ([\d.]+)", limit[: limit.index("<title>")]))
    assert len(heights) == 2


def test_a_message_that_waited_for_its_group_is_no_slow_recovery(page: str) -> None:
    said = words(section(page, "recoveries"))
    assert "m2" in said
    assert "m-behind" not in said


def test_groups_that_are_not_shown_are_counted(spark: SparkSession) -> None:
    found = replace(findings(spark), stop_sums={"groups": 1_002, "stops": 5_000})
    said = words(section(render(found), "groups"))
    assert "Not shown: 1,000 groups of 1,002, with shorter stops." in said
    assert "The longest 4 of 5,000 stops" in said
    assert "Not shown" not in words(section(render(findings(spark)), "groups"))


@pytest.mark.parametrize(
    ("receives", "known", "said"),
    [
        (0, 0, "No message of a FIFO queue was received, so no group can have stopped."),
        (9, 9, "No failure stopped a group, in 9 receives of FIFO queues."),
        (9, 1, "in 1 receive of FIFO queues. 8 more have no group in the journal: older"),
    ],
)
def test_where_no_group_stopped_it_says_what_that_is_based_on(
    spark: SparkSession, receives: int, known: int, said: str
) -> None:
    grouped = {"receives": receives, "with_group": known}
    found = replace(findings(spark), stopped_groups=[], group_stops=[], grouped=grouped)
    assert said in words(section(render(found), "groups"))


@pytest.mark.parametrize("ticks", TICKS)
def test_ticks_skip_no_second_that_people_count_by(ticks: tuple[float, ...]) -> None:
    assert list(ticks) == sorted(set(ticks))
    assert 10 in ticks


@pytest.mark.parametrize(
    ("sums", "unseen", "basis"),
    [
        ({}, 0, "3 workers: 10 messages, received 10 times."),
        ({}, 1, "received 10 times; 1 receive is in no journal."),
        ({"missing": 3}, 0, "10 times; missing lines may contain duplicates."),
    ],
)
def test_an_all_clear_says_what_it_is_based_on(
    spark: SparkSession, sums: dict[str, int], unseen: int, basis: str
) -> None:
    about = {**findings(spark).workers, "missing": 0, "before": 0, **sums}
    found = replace(findings(spark), causes=[], duplicates=[], workers=about, rejects=[])
    rows = [{"queue": "q", "why": IN_NO_JOURNAL, "receives": unseen}] if unseen else []
    found = replace(found, receives=rows)
    said = words(section(render(found), "duplicates"))
    assert said.startswith(" No message was executed twice in the journal of ")
    assert basis in said


def test_without_a_recorded_start_nothing_is_said_about_duplicates(spark: SparkSession) -> None:
    seen = {**findings(spark).overview, "started": 0}
    page = render(replace(findings(spark), causes=[], duplicates=[], overview=seen))
    for anchor in ("overview", "duplicates"):
        assert overview.NO_STARTS in words(section(page, anchor))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "Missing argument 'JOURNAL_OR_WAREHOUSE'"),
        (["j", "--from", "2026-03-02", "--to", "2026-03-01"], "is after --to"),
        (["j", "--from", "yesterday"], "is not a day of the calendar"),
    ],
)
def test_wrong_options_are_reported_before_spark_starts(arguments: list[str], fault: str) -> None:
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 2
    assert fault in result.output


def test_without_jinja2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == "jinja2" else name)
    result = CliRunner().invoke(report, ["j"])
    assert result.exit_code == 2
    assert "needs Jinja2: pip install 'celery-sqs-heartbeat[pipeline]'" in result.output

"""The report: what it says, word for word, and that names of others stay text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.cli import sqs_heartbeat
from celery_sqs_heartbeat.common.escaping import escaped
from celery_sqs_heartbeat.common.exits import FOUND
from celery_sqs_heartbeat.pipeline import report
from celery_sqs_heartbeat.pipeline.report.page import render
from celery_sqs_heartbeat.pipeline.report.plots import durations_of
from celery_sqs_heartbeat.pipeline.report.queries import Found
from celery_sqs_heartbeat.pipeline.tables.durations import bin_of
from tests.pipeline.builders import DAY, SECOND
from tests.pipeline.journals import Worker, write_all, write_segment
from tests.support.golden import golden

NAME, HARMLESS = "proj.add", "harmless"
#: Names of tasks, which are a part of other texts, too.
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


def text_of(page: str) -> str:
    """Return the page's text: a line for each row, paragraph and part of a drawing."""
    _, _, body = page.partition("</style>")
    body = re.sub(r"\s+", " ", body)
    body = re.sub(r"<details> *<summary>(.*?)</summary>", r"\n[\1]\n", body)
    body = re.sub(r"</(?:th|td)>", " | ", body)
    body = re.sub(r"</(?:tr|p|h\d|caption|li|span|div|dd|title)>", "\n", body)
    lines = unescape(re.sub(r"<[^>]+>", "", body)).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip()) + "\n"


def named(found: Any, name: str) -> Any:
    """Return the same with another name wherever the task's was part of a text."""
    if isinstance(found, str):
        return found.replace(NAME, name)
    if isinstance(found, Mapping):
        return {key: named(value, name) for key, value in found.items()}
    if isinstance(found, Sequence):
        return [named(each, name) for each in found]
    return found


def nothing(found: Found) -> Found:
    """Return the same where there is nothing: the sums of no rows."""
    sums = ("overview", "workers", "grouped", "stop_sums")
    return {
        query: [dict.fromkeys(rows[0], 0)] if query in sums else [] for query, rows in found.items()
    }


def test_a_journal_becomes_a_page_and_what_can_t_be_read_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    """From the command to the page: what ran twice and why, and the rest that could not be read."""
    killed, other = Worker("w1", DAY), Worker("w2", DAY)
    killed.attempt("m1", 1, DAY + SECOND, 0, None)
    other.attempt("m1", 2, DAY + 90 * SECOND, 20, "message-deleted")
    other.attempt("m2", 1, DAY + 3600 * SECOND, 20, "message-deleted")
    journal, out = write_all(tmp_path / "journal", [killed, other]), tmp_path / "report.html"
    write_segment(journal, "2026-03-14", "w3", [], "what}\n")
    result = CliRunner().invoke(sqs_heartbeat, ["report", str(journal), "--out", str(out)])
    assert result.exit_code == FOUND, result.output
    assert re.fullmatch(
        r"Warning: \d+\.\d% of the lines of '.*' could not be read \(corrupt line: 1\); "
        r"the rest was\."
        r" The table rejects and the report's last section name the files\.\n",
        result.stderr,
    )
    text = text_of(out.read_text())
    assert text.startswith("Skip to the report SQS heartbeat report\n")
    assert "2 workers received 2 messages 3 times, from 1 queue for 1 task. 1 execution is" in text
    assert "died-while-running | the worker died while the task ran | look for" in text
    assert "its worker w1 was silent from" in text
    assert "Keep visibility timeout 60 s and threshold 20 s" in text
    assert "dt=2026-03-14/worker=w3/seg-1.jsonl.zst | corrupt line | 1 |" in text


@pytest.mark.thorough
def test_the_page_says_what_it_said_before(found: Found) -> None:
    golden("report.txt", text_of(render(found, segments=7)))
    golden("report_of_nothing.txt", text_of(render(nothing(found))))


@pytest.mark.thorough
def test_hostile_names_are_shown_as_they_are_and_change_nothing_else(found: Found) -> None:
    harmless = Parts(render(named(found, HARMLESS)))
    places = [number for number, each in enumerate(harmless.values) if HARMLESS in each]
    assert len(places) > 15
    for name in HOSTILE.values():
        page = render(named(found, name))
        page.encode()
        hostile = Parts(page)
        assert hostile.elements == harmless.elements
        shown = escaped(name)
        assert [n for n, each in enumerate(hostile.values) if shown in each] == places
        assert page.count(name) == 0 or shown == name == unescape(name)


@pytest.mark.thorough
def test_unknown_values_are_a_dash(found: Found) -> None:
    rows = [{**row, "task": None} for row in found["duplicates"]]
    page = render({**found, "duplicates": rows})
    assert '<td data-name="task">\N{EN DASH}</td>' in page


def test_runs_without_an_end_are_counted_and_have_no_quantile() -> None:
    run = {"task": NAME, "queue": "q", "measure": "run", "vt": 30, "bin": bin_of(40 * SECOND)}
    (shown,) = durations_of([{**run, "spans": 0, "censored": 2}])
    unknown = dict.fromkeys(("p50", "p90", "p99", "p99.9"))
    assert shown["quantiles"] == [{"title": "run time", "durations": 2, **unknown}]
    assert (shown["unfinished"], shown["beyond"]) == (2, [(30, 1.0)])


def test_nothing_is_marked_as_safe() -> None:
    """Python passes only text, and the template treats none of it as markup."""
    folder = Path(report.__file__).parent
    (template,) = folder.rglob("*.j2")
    source = template.read_text(encoding="utf-8").replace(" ", "")
    assert "|safe" not in source
    assert "autoescape" not in source
    for path in folder.rglob("*.py"):
        assert "Markup(" not in path.read_text(encoding="utf-8")

"""What the example project shows of a job, as far as neither a site nor a worker is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operating.conftest import Studio
from tests.support.example import FOLDER, readme_command
from tests.support.markdown import ROOT


def test_500_pictures_take_longer_than_the_queue_hides_their_message(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    pictures = studio("pictures")
    image = studio("pictures").Image.new("RGB", (8, 8))
    monkeypatch.setattr(pictures, "draw", lambda number: image)
    monkeypatch.setattr(
        pictures,
        "time",
        SimpleNamespace(
            monotonic=lambda: clock.now,
            sleep=lambda seconds: setattr(clock, "now", clock.now + seconds),
        ),
    )
    pictures.draw_with_thumbnails(500, tmp_path)
    words = readme_command("python -m celery_sqs_heartbeat.testing.server")
    _, hidden, _ = words[-1].split(":")
    assert clock.now == pytest.approx(50)
    assert clock.now > int(hidden)
    readme = (ROOT / "example_project" / "README.md").read_text(encoding="utf-8")
    assert "50 s or more" in readme


def test_a_job_with_1000_files_is_one_line_and_pages_of_links(studio: Studio) -> None:
    pages = studio("pages")
    job = studio("jobs").order("thumbnails", 500)
    with job.trying(1, 5) as made:
        for number in range(1000):
            (made / f"{number:04}.jpg").touch()
    (row,) = pages.table(None)["page"].items
    assert (len(row.files), row.more) == (pages.FEW, 1000 - pages.FEW)
    shown: list[str] = []
    asked = 1
    while asked:
        page = pages.job(job.id, str(asked))["page"]
        assert len(page.items) <= pages.PAGE_LENGTH
        assert page.previous == asked - 1
        shown += page.items
        asked = page.next
    assert shown == job.files


@pytest.mark.parametrize(
    ("asked", "number"), [(None, 1), ("0", 1), ("2", 2), ("99", 3), ("-1", 1), ("x", 1)]
)
def test_a_page_that_is_not_there_is_the_nearest_one(
    studio: Studio, asked: str | None, number: int
) -> None:
    page = studio("pages").Page.of(range(101), asked)
    assert (page.number, page.count) == (number, 3)


def test_times_are_sent_in_utc_and_say_so(studio: Studio, tmp_path: Path) -> None:
    job = studio("jobs").order("thumbnails", 1)
    terms: dict[str, Any] = json.loads((tmp_path / job.id / "order.json").read_text())
    (tmp_path / job.id / "order.json").write_text(json.dumps({**terms, "ordered_at": 0.0}))
    assert studio("jobs").get(job.id).ordered == "1970-01-01T00:00:00Z"
    settings = (FOLDER / "django_site" / "settings.py").read_text()
    assert re.findall(r'^TIME_ZONE = "(\w+)"', settings, re.MULTILINE) == ["UTC"]


def test_a_job_of_an_older_version_has_no_file_name(studio: Studio, tmp_path: Path) -> None:
    terms = {"kind": "csv_totals", "size": 1, "ordered_at": 0.0}
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "order.json").write_text(json.dumps(terms))
    (row,) = studio("pages").table(None)["page"].items
    assert row.title == "csv_totals"

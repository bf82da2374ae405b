"""What the example project shows of a job, as far as neither a site nor a worker is needed."""

from __future__ import annotations

import importlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.example import FOLDER, readme_command
from tests.support.markdown import ROOT

Studio = Callable[[str], ModuleType]
#: Keeps a try until it is killed.
WORKER = """
import sys, time
from studio import jobs
with jobs.get(sys.argv[1]).trying(int(sys.argv[2]), 5):
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    """Import a module of the example; its jobs are in a folder of the test's."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("STUDIO_FOLDER", str(tmp_path))
    monkeypatch.setattr(importlib.import_module("studio.jobs"), "ROOT", tmp_path)
    return lambda name: importlib.import_module(f"studio.{name}")


def test_the_state_of_a_job_follows_its_tries(studio: Studio) -> None:
    job = studio("jobs").order("csv_totals", 1)
    assert job.state == "waiting"
    for receive_count, state in [(1, "retrying"), (4, "retrying"), (5, "failed")]:
        with pytest.raises(ValueError, match="no order"), job.trying(receive_count, 5):
            assert job.state == "started"
            raise ValueError("no order")
        assert job.state == state
    assert [each.text for each in job.tries] == [f"receive {n}: no order" for n in (1, 4, 5)]
    # Its message was moved back from the dead-letter queue: SQS counts anew.
    with job.trying(1, 5):
        assert job.state == "started"
        with job.draft() as made:
            (made / "totals.csv").touch()
    assert job.state == "done"
    assert job.tries[-1].text == "receive 1"


def test_a_try_without_a_known_limit_is_never_the_last(studio: Studio) -> None:
    job = studio("jobs").order("csv_totals", 1)
    for receive_count, limit in [(9, None), (None, 5)]:
        with pytest.raises(ValueError, match="no"), job.trying(receive_count, limit):
            raise ValueError("no order")
        assert job.state == "retrying"


@pytest.mark.parametrize(("receive_count", "state"), [(1, "retrying"), (5, "failed")])
def test_a_job_whose_worker_was_killed_is_not_shown_as_started(
    studio: Studio, receive_count: int, state: str
) -> None:
    job = studio("jobs").order("thumbnails", 500)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, job.id, str(receive_count)],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        assert job.state == "started"
        worker.send_signal(signal.SIGKILL)
    assert job.state == state
    assert [each.text for each in job.tries] == [f"receive {receive_count}: cut short"]


@pytest.mark.parametrize("text", ["", "region,amount\n", "a,b\n1,2\n", "region,amount\nnorth,x\n"])
def test_totals_of_a_file_without_orders_fail(studio: Studio, tmp_path: Path, text: str) -> None:
    (tmp_path / "upload").write_text(text)
    with pytest.raises(ValueError, match="order"):
        studio("totals").add_up(tmp_path / "upload", tmp_path / "totals.csv")
    assert not (tmp_path / "totals.csv").exists()


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
    with job.draft() as made:
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

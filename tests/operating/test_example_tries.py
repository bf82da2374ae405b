"""What the example project keeps of each try of a job, and what it shows of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.operating.conftest import Studio
from tests.support.example import FOLDER

#: Keeps a try until it is killed.
WORKER = """
import sys, time
from studio import jobs
with jobs.get(sys.argv[1]).trying(int(sys.argv[2]), 5) as folder:
    (folder / "half.jpg").touch()
    print("begun", flush=True)
    time.sleep(600)
"""


@contextmanager
def working(job_id: str, receive_count: int) -> Iterator[None]:
    """Let another process try a job while the block runs, then kill it."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, job_id, str(receive_count)],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        try:
            yield
        finally:
            worker.send_signal(signal.SIGKILL)


def test_the_state_of_a_job_follows_its_tries(studio: Studio) -> None:
    job = studio("jobs").order("csv_totals", 1)
    assert job.state == "waiting"
    for receive_count, state in [(1, "retrying"), (4, "retrying"), (5, "failed")]:
        with pytest.raises(ValueError, match="no order"), job.trying(receive_count, 5):
            assert job.state == "started"
            raise ValueError("no order")
        assert job.state == state
    assert [each.text for each in job.tries] == [f"receive {n}: no order" for n in (1, 4, 5)]
    # Its message was moved back from the dead-letter queue: SQS counts from one again.
    with job.trying(1, 5) as made:
        assert job.state == "started"
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
    with working(job.id, receive_count):
        assert job.state == "started"
    assert job.state == state
    assert [each.text for each in job.tries] == [f"receive {receive_count}: cut short"]


def test_a_done_job_keeps_nothing_of_the_tries_that_were_cut_short(studio: Studio) -> None:
    job = studio("jobs").order("thumbnails", 500)

    def halves() -> list[Path]:
        return list(job.folder.rglob("half.jpg"))

    # One has lost its lease and still runs: it keeps its folder until it ends.
    with working(job.id, 1):
        with working(job.id, 2):
            assert len(halves()) == 2
        with job.trying(3, 5) as made:
            (made / "whole.jpg").touch()
            assert len(halves()) == 1
        assert job.files == ["whole.jpg"]
        assert len(halves()) == 1
    with job.trying(4, 5) as made:
        (made / "late.jpg").touch()
    assert job.files == ["whole.jpg"]
    assert {path.name for path in job.folder.rglob("*.jpg")} == {"whole.jpg"}


def test_a_try_that_fails_keeps_nothing_of_what_it_made(studio: Studio) -> None:
    job = studio("jobs").order("thumbnails", 500)
    with pytest.raises(ValueError, match="no"), job.trying(1, 5) as made:
        (made / "half.jpg").touch()
        raise ValueError("no more")
    assert list(job.folder.rglob("*.jpg")) == job.files == []

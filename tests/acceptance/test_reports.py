"""What a report says of workers that were killed, whose truth is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from tests.acceptance.processes import keepers_on
from tests.acceptance.record import wait_for_extensions
from tests.acceptance.scene import Scene
from tests.pipeline.cheap import JAVA, JAVA_VARIABLE, SUBMIT_ARGS
from tests.support.answers import Answer, Body, Unanswered
from tests.support.environment import SAFE_ENV
from tests.support.faults import Forward

#: Extended about every second, and short enough to wait for.
TIMEOUT = {"VisibilityTimeout": "10"}
EAGER = {"sqs_heartbeat_threshold": 9}
#: By caption, then by row, then by column.
Tables = dict[str, list[dict[str, str]]]


class Page(HTMLParser):
    """The tables of a report."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: Tables = {}
        self._names: list[str] = []
        self._cells: list[str] = []
        self._tag = self._caption = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("caption", "th", "td"):
            self._tag = tag
            self._cells.append("")
        elif tag == "tr":
            self._cells = []

    def handle_data(self, data: str) -> None:
        if self._tag and self._cells:
            self._cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "caption":
            self._caption = self._cells.pop()
        elif tag == "tr" and self._tag == "th":
            self._names = self._cells
        elif tag == "tr":
            cells = map(str.strip, self._cells)
            row = dict(zip(map(str.strip, self._names), cells, strict=True))
            self.tables.setdefault(self._caption, []).append(row)
        if tag in ("caption", "tr"):
            self._tag = ""


def report(journal: Path) -> Tables:
    """Return the tables of a journal's report, as the command writes them."""
    page = journal.with_suffix(".html")
    spark = {JAVA_VARIABLE: JAVA, "PYSPARK_SUBMIT_ARGS": SUBMIT_ARGS}
    subprocess.run(
        [
            *(sys.executable, "-m", "celery", "-b", "memory://", "sqs-heartbeat", "report"),
            *(str(journal), "--out", str(page)),
        ],
        env={**os.environ, **SAFE_ENV, **spark},
        check=True,
        capture_output=True,
    )
    return Page(page.read_text()).tables


def swallow(body: Body, forward: Forward) -> Answer:
    """Leave the answer of a receive with messages on the way, as if its client had died."""
    answer = forward(body)
    if answer.payload.get("Messages"):
        raise Unanswered
    return answer


def wid_of(scene: Scene, journal: Path, known: set[str]) -> str:
    """Return the id of the worker whose journal has begun."""

    def new() -> set[str]:
        return {path.name for path in journal.glob("dt=*/worker=*")} - known

    scene.wait_until(new)
    (folder,) = new()
    known.add(folder)
    return folder.removeprefix("worker=")


def test_a_report_blames_a_killed_worker_by_name_and_counts_executions(
    new_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    """One is killed with no open poll, one with a poll that SQS then puts a message into."""
    scene, journal, known = new_scene(attributes=TIMEOUT), tmp_path / "journal", set[str]()
    conf = {"sqs_heartbeat_journal": str(journal), **EAGER}
    scene.send("hold", "killed")
    full = scene.worker("-c", "1", conf={**conf, "worker_prefetch_multiplier": 1})
    first = wid_of(scene, journal, known)
    wait_for_extensions(scene, 1, since=0.0)
    full.kill()
    scene.wait_until(lambda: scene.counts() == (1, 0))
    polling = scene.worker("-c", "1", conf=conf)
    second = wid_of(scene, journal, known)
    scene.wait_for_notes("start", 2)
    scene.proxy.rule("ReceiveMessage", swallow)
    polls = len(scene.calls("ReceiveMessage"))
    scene.wait_until(lambda: len(scene.calls("ReceiveMessage")) > polls)
    scene.send("work", "swallowed")
    scene.wait_until(lambda: scene.counts() == (0, 2))
    polling.kill()
    scene.proxy.clear()
    scene.wait_until(lambda: scene.counts() == (2, 0))
    scene.wait_until(lambda: keepers_on(scene) == [])
    scene.let_end("killed")
    last = scene.worker("-c", "1", conf=conf)
    scene.wait_until_empty()
    last.kill(signal.SIGTERM)
    assert last.wait_for_exit() == 0
    assert scene.keys("start") == ["killed", "killed", "killed", "swallowed"]
    before = report(journal)
    # The oldest environment, which collects this file, has no pyarrow.
    from tests.pipeline.builders import SECOND
    from tests.pipeline.journals import Worker, write_all

    # An hour later: by then, a worker without a last line counts as dead.
    later = Worker("w-unrelated", time.time_ns() // 1000 + 3600 * SECOND)
    later.attempt("another", 1, later.started, 1, "message-deleted", queue=scene.name)
    write_all(journal, [later])
    for tables in (before, report(journal)):
        (cause,) = tables["Duplicates by root cause"]
        assert (cause["cause"], cause["pairs"]) == ("died-while-running", "2")
        pairs = tables["Pairs of executions, the longest overlap first"]
        # Each died in the middle of one execution, and its keeper said so.
        for worker in (first, second):
            assert sum(f"worker {worker} died" in pair["evidence"] for pair in pairs) == 1
        (idle,) = tables["Receives without an execution, by queue and cause"]
        assert (idle["queue"], idle["cause"]) == (scene.name, "in no journal")
        assert idle["receives"] == "1"

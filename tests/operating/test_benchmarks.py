"""The benchmarks and the demo: what they make of what they measure, and that they run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.__main__ import BASELINE, PAGE
from benchmarks.parts import PARTS
from benchmarks.throughput.windows import percentile, tasks_per_second
from demo.ledger import Event, after_a_kill, duplicates, executions, mean_delay, succeeded
from tests.support.markdown import ROOT


def test_a_rate_counts_whole_cycles_from_one_receive_to_another() -> None:
    receives = [(9.0, 0), (10.0, 2), (11.0, 2), (12.0, 2), (15.0, 0)]
    deletes = [(9.9, 2), (10.1, 1), (10.2, 1), (11.1, 2), (12.1, 1)]
    assert tasks_per_second(receives, deletes) == 2.0
    assert tasks_per_second([(10.0, 1), (11.0, 0)], [(10.5, 1)]) == 0
    samples = [float(each) for each in range(100, 0, -1)]
    assert [percentile(samples, share) for share in (0, 0.5, 0.99, 0.991)] == [1, 50, 99, 100]


def lines(notes: str) -> list[str]:
    """Return what tasks write about these runs of the demo: "a1" and "a2" are two runs of "a"."""
    made = []
    for note in notes.split(", "):
        *run, event, at = note.split()
        known = {"run": run[0], "task": run[0][0]} if run else {}
        made.append(json.dumps({**known, "event": event, "at": float(at), "group": 1}) + "\n")
    return made


KILLED = "a1 started 0, killed 3, a2 started 5, a2 succeeded 9"


@pytest.mark.parametrize(
    ("notes", "counts", "done", "delays"),
    [
        ("a1 started 0, a1 failed 1, a2 started 4, a2 succeeded 5", (0, 0), {"a"}, (3.0, None)),
        ("a1 started 0, a2 started 3, a1 succeeded 6, a2 succeeded 9", (1, 0), {"a"}, (None, None)),
        (KILLED, (1, 1), {"a"}, (None, 2.0)),
        ("a1 started 0, a2 started 3, killed 4, a3 started 5", (2, 1), set(), (None, 1.0)),
        ("a1 started 0, a1 failed 1", (0, 0), set(), (None, None)),
    ],
)
def test_the_demo_counts_duplicates_losses_and_the_time_to_the_next_try(
    notes: str, counts: tuple[int, int], done: set[str], delays: tuple[Any, Any]
) -> None:
    runs = executions(lines(notes))
    assert (len(duplicates(runs)), len(after_a_kill(runs))) == counts
    assert succeeded(runs) == done
    assert (mean_delay(runs, Event.FAILED), mean_delay(runs, Event.KILLED)) == delays
    # A line that is still being written is left out.
    assert executions([*lines(notes), '{"event": "star']) == runs


MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if path.stem != "__init__"
)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_every_module_of_the_benchmarks_can_be_imported() -> None:
    done = run("-c", "\n".join(f"import {name}" for name in MODULES))
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_a_part_runs_in_its_smallest_size_and_writes_nothing() -> None:
    part, *_ = PARTS
    before = PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()
    done = run("-m", "benchmarks", "--tiny", part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{part}: " in done.stdout
    assert (PAGE.read_bytes(), BASELINE.exists() and BASELINE.read_bytes()) == before

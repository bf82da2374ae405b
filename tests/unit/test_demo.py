"""What the demo counts in its executions, and shows of its two kinds of worker."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from demo import report
from demo.ledger import Event, after_a_kill, duplicates, executions, mean_delay, succeeded
from demo.phase import Result

#: A run's key contains its task: "a1" and "a2" are two runs of "a".
NOTES = {
    "fails twice, then succeeds": "a1 started 0, a1 failed 1, a2 started 4, a2 failed 5, "
    "a3 started 6, a3 succeeded 7",
    "started again beside itself": "a1 started 0, a2 started 3, a1 succeeded 6, a2 succeeded 9",
    "started again after its success": "a1 started 0, a1 succeeded 6, a2 started 7",
    "killed during its run": "a1 started 0, killed 3, a2 started 5, a2 succeeded 9",
    "killed beside itself": "a1 started 0, a2 started 3, killed 4, a3 started 5, a4 started 6",
    "fails beside itself": "a1 started 0, a2 started 3, a2 failed 4, a3 started 5",
    "fails and is not tried again": "a1 started 0, a1 failed 1",
}


def lines(notes: str) -> list[str]:
    """Return the lines that tasks write about these runs."""
    made = []
    for note in notes.split(", "):
        *run, event, at = note.split()
        known = {"run": run[0], "task": run[0][0]} if run else {}
        made.append(json.dumps({**known, "event": event, "at": float(at), "group": 1}) + "\n")
    return made


@pytest.mark.parametrize(
    ("notes", "twice", "expected", "done", "failed", "killed"),
    [
        ("fails twice, then succeeds", 0, 0, {"a"}, 2.0, None),
        ("started again beside itself", 1, 0, {"a"}, None, None),
        ("started again after its success", 1, 0, {"a"}, None, None),
        ("killed during its run", 1, 1, {"a"}, None, 2.0),
        ("killed beside itself", 3, 1, set(), None, 1.0),
        ("fails beside itself", 1, 0, set(), 1.0, None),
        ("fails and is not tried again", 0, 0, set(), None, None),
    ],
)
def test_duplicates_losses_and_the_time_to_the_next_try_are_counted(
    notes: str,
    twice: int,
    expected: int,
    done: set[str],
    failed: float | None,
    killed: float | None,
) -> None:
    runs = executions(lines(NOTES[notes]))
    assert len(duplicates(runs)) == twice
    assert len(after_a_kill(runs)) == expected
    assert succeeded(runs) == done
    assert mean_delay(runs, Event.FAILED) == failed
    assert mean_delay(runs, Event.KILLED) == killed


def test_both_kinds_of_worker_are_shown_side_by_side() -> None:
    stock = Result(
        executions=executions(lines("a1 started 0, a1 failed 1, a2 started 31")), calls=Counter()
    )
    calls = Counter({"DeleteMessageBatch": 2, "DeleteMessage": 1})
    heartbeat = Result(
        executions=executions(lines("a1 started 0, a1 failed 1, a2 started 1.5")), calls=calls
    )
    table = report.table(stock, heartbeat)
    titles, *columns = (list(column.cells) for column in table.columns)
    rows = dict(zip(titles, zip(*columns, strict=True), strict=True))
    assert [column.header for column in table.columns[1:]] == ["stock worker", "--heartbeat-sqs"]
    assert rows["seconds from failure to next start"] == ("30.0", "0.5")
    assert rows["SQS calls: delete"] == ("0", "3")


def test_the_duplicate_of_the_killed_task_is_expected_and_not_highlighted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "TASKS", ("a",))
    killed = Result(executions=executions(lines(NOTES["killed during its run"])), calls=Counter())
    titles, *columns = (list(column.cells) for column in report.table(killed, killed).columns)
    rows = dict(zip(titles, zip(*columns, strict=True), strict=True))
    assert rows["duplicates"] == ("1", "1")
    assert rows["  expected: the worker was killed"] == ("1", "1")
    assert rows["  avoidable"] == ("[green]0", "[green]0")
    assert report.twice(killed) == 0
    assert "Its duplicate is the killed worker's task, too" in report.about_the_page(killed)
    assert "no task ran twice except the killed worker's task" in report.verdict(killed, killed)


def test_receives_are_not_compared() -> None:
    empty = Result(executions=(), calls=Counter({"ReceiveMessage": 134}))
    titles, *_ = (list(column.cells) for column in report.table(empty, empty).columns)
    assert [title for title in titles if "SQS calls" in str(title)] == [
        "SQS calls: extend or release",
        "SQS calls: delete",
    ]


def test_a_line_that_is_still_being_written_is_left_out() -> None:
    assert executions(['{"event": "star']) == []

"""The table at the end, and the sentences under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.table import Table

from demo.ledger import Event, after_a_kill, duplicates, mean_delay, succeeded
from demo.phase import LIMIT_SECONDS, NEEDED, TASKS, VISIBILITY_TIMEOUT, Result

#: Batched and single calls, by what they are for. Not those that receive: most of them find an
#: empty queue, so they say for how long a worker was watched.
CALLS = {
    "extend or release": ("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
    "delete": ("DeleteMessage", "DeleteMessageBatch"),
}


def twice(result: Result) -> int:
    """Return how many executions were duplicates that a heartbeat avoids."""
    return len(duplicates(result.executions)) - expected(result)


def expected(result: Result) -> int:
    """Return how many executions were duplicates because of the kill: none or one."""
    return len(after_a_kill(result.executions))


def lost(result: Result) -> int:
    """Return how many tasks never succeeded."""
    return len(set(TASKS) - succeeded(result.executions))


def retry_delay(result: Result) -> float | None:
    """Return the mean time from a failure to the next try, in seconds."""
    return mean_delay(result.executions, Event.FAILED)


def recovery_delay(result: Result) -> float | None:
    """Return the time from the kill until the task started again, in seconds."""
    return mean_delay(result.executions, Event.KILLED)


def table(stock: Result, heartbeat: Result) -> Table:
    """Return what both kinds of worker made of the same work, side by side."""
    shown = Table(
        title=f"{len(TASKS)} tasks, visibility timeout {VISIBILITY_TIMEOUT} s",
        caption="* by a new worker: its start, of some seconds, is part of it",
    )
    shown.add_column("")
    shown.add_column("stock worker", justify="right")
    shown.add_column("--heartbeat-sqs", justify="right")
    for title, value in _rows():
        shown.add_row(title, value(stock), value(heartbeat))
    return shown


def verdict(stock: Result, heartbeat: Result) -> str:
    """Return what one sees in the table, and what to do next."""
    if twice(heartbeat) or lost(heartbeat):
        return (
            f"With --heartbeat-sqs, avoidable duplicates: {twice(heartbeat)}; tasks lost (no "
            f"success within {LIMIT_SECONDS:.0f} s): {lost(heartbeat)}. Neither should be: this "
            "machine was far too busy, or you have found a defect."
        )
    but = (
        " but the killed worker's task, which has to run again: no one knows how far it came"
        if expected(heartbeat)
        else ""
    )
    return (
        f"The stock worker started a task that was running or done {twice(stock)} times: it avoids "
        "that only with a timeout longer than any task, and then waits as long after each failure "
        f"and crash. With --heartbeat-sqs nothing ran twice{but}. What failed was tried again "
        f"{_seconds(retry_delay(heartbeat))} s later. Next: write `app = install(Celery(...))` "
        "and start your worker with --heartbeat-sqs; README.md tells more."
    )


def about_the_page(heartbeat: Result) -> str:
    """Return how the page on the journal goes with the table."""
    begin = "The page is on the --heartbeat-sqs workers alone, "
    if not expected(heartbeat):
        return begin + "and has no duplicates, either."
    return (
        f"{begin}and its duplicate is the task of the killed worker, too. Its time of recovery is "
        "longer: it counts from that worker's last event in the journal, which was before the kill."
    )


def _rows() -> Iterator[tuple[str, Callable[[Result], str]]]:
    yield "tasks sent", lambda _: str(len(TASKS))
    yield f"executions ({NEEDED} needed)", lambda result: str(len(result.executions))
    yield "duplicates", lambda result: str(len(duplicates(result.executions)))
    yield "  as the worker was killed: expected", lambda result: str(expected(result))
    yield "  avoidable", lambda result: _alarming(twice(result))
    yield "tasks lost", lambda result: _alarming(lost(result))
    yield "seconds from failure to next start", lambda result: _seconds(retry_delay(result))
    yield "seconds from kill -9 to next start*", lambda result: _seconds(recovery_delay(result))
    for kind in CALLS:
        yield f"SQS calls: {kind}", partial(_count, kind)


def _count(kind: str, result: Result) -> str:
    return str(sum(result.calls[operation] for operation in CALLS[kind]))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _alarming(count: int) -> str:
    return f"[bold red]{count}" if count else f"[green]{count}"

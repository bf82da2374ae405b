"""The table that the demo prints last, and the sentences below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.table import Table

from demo.ledger import Event, after_a_kill, duplicates, mean_delay, succeeded
from demo.phase import LIMIT_SECONDS, NEEDED, SHORT_TIMEOUT, TASKS, USUAL_TIMEOUT, Result

#: Batched and single calls, by purpose. Receives are left out: most of them find an empty queue,
#: so their number only shows how long a worker was watched.
CALLS = {
    "extend or release": ("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
    "delete": ("DeleteMessage", "DeleteMessageBatch"),
}


def twice(result: Result) -> int:
    """Return the number of duplicates that a heartbeat avoids."""
    return len(duplicates(result.executions)) - expected(result)


def expected(result: Result) -> int:
    """Return the number of duplicates that the kill caused: none or one."""
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
    """Return the results of both kinds of worker, side by side."""
    shown = Table(
        title=f"{len(TASKS)} tasks; visibility timeout {SHORT_TIMEOUT} s, "
        f"{USUAL_TIMEOUT} s for those that fail",
    )
    shown.add_column("")
    shown.add_column("stock worker", justify="right")
    shown.add_column("--heartbeat-sqs", justify="right")
    for title, value in _rows():
        shown.add_row(title, value(stock), value(heartbeat))
    return shown


def verdict(stock: Result, heartbeat: Result) -> str:
    """Return the conclusion from the table, and what to do next."""
    if twice(heartbeat) or lost(heartbeat):
        return (
            f"With --heartbeat-sqs, avoidable duplicates: {twice(heartbeat)}; tasks lost (no "
            f"success within {LIMIT_SECONDS:.0f} s): {lost(heartbeat)}. Both should be 0. Either "
            "this machine was far too busy, or you have found a defect."
        )
    except_for = (
        " except the killed worker's task, which must run again: no one knows how far it came"
        if expected(heartbeat)
        else ""
    )
    return (
        f"The stock worker started a task {twice(stock)} times while it was running or done. It "
        "avoids that only with a visibility timeout longer than any task, and then each failure "
        f"and crash waits for that timeout. With only {USUAL_TIMEOUT} s, that took "
        f"{_delays(stock)} s. With --heartbeat-sqs, no task ran twice{except_for}. Failure and "
        f"crash took {_delays(heartbeat)} s. Next: write `app = install(Celery(...))` and start "
        "your worker with --heartbeat-sqs. README.md shows how."
    )


def about_the_page(heartbeat: Result) -> str:
    """Return how the report of the journal relates to the table."""
    begin = "The report covers only the --heartbeat-sqs workers. "
    if not expected(heartbeat):
        return begin + "It has no duplicates, either."
    return (
        f"{begin}Its duplicate is the killed worker's task, too, with the cause "
        "died-while-running. Its recovery times are shorter, because they count from the release "
        "of a message, after the failure or the kill."
    )


def _rows() -> Iterator[tuple[str, Callable[[Result], str]]]:
    yield "tasks sent", lambda _: str(len(TASKS))
    yield f"executions ({NEEDED} needed)", lambda result: str(len(result.executions))
    yield "duplicates", lambda result: str(len(duplicates(result.executions)))
    yield "  expected: the worker was killed", lambda result: str(expected(result))
    yield "  avoidable", lambda result: _alarming(twice(result))
    yield "tasks lost", lambda result: _alarming(lost(result))
    yield "seconds from failure to next start", lambda result: _seconds(retry_delay(result))
    yield "seconds from kill -9 to next start", lambda result: _seconds(recovery_delay(result))
    for kind in CALLS:
        yield f"SQS calls: {kind}", partial(_count, kind)


def _count(kind: str, result: Result) -> str:
    return str(sum(result.calls[operation] for operation in CALLS[kind]))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _delays(result: Result) -> str:
    return f"{_seconds(retry_delay(result))} and {_seconds(recovery_delay(result))}"


def _alarming(count: int) -> str:
    return f"[bold red]{count}" if count else f"[green]{count}"

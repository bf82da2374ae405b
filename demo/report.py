"""The table at the end, and the sentences under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.table import Table

from demo.ledger import Event, duplicates, mean_delay, succeeded
from demo.phase import LIMIT_SECONDS, NEEDED, TASKS, VISIBILITY_TIMEOUT, Result

#: Batched and single calls, by what they are for.
CALLS = {
    "receive": ("ReceiveMessage",),
    "extend or release": ("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
    "delete": ("DeleteMessage", "DeleteMessageBatch"),
}


def twice(result: Result) -> int:
    """Return how many executions were duplicates."""
    return len(duplicates(result.executions))


def lost(result: Result) -> int:
    """Return how many tasks never succeeded."""
    return len(set(TASKS) - succeeded(result.executions))


def retry_delay(result: Result) -> float | None:
    """Return the mean time from a failure to the next try, in seconds."""
    return mean_delay(result.executions, Event.FAILED)


def redelivery_delay(result: Result) -> float | None:
    """Return the time from the kill until the task ran again, in seconds."""
    return mean_delay(result.executions, Event.KILLED)


def table(stock: Result, heartbeat: Result) -> Table:
    """Return what both kinds of worker made of the same work, side by side."""
    shown = Table(title=f"{len(TASKS)} tasks, visibility timeout {VISIBILITY_TIMEOUT} s")
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
            f"With --heartbeat-sqs {twice(heartbeat)} executions were duplicates and "
            f"{lost(heartbeat)} tasks were lost (no success within {LIMIT_SECONDS:.0f} s). Neither "
            "should be: this machine was far too busy, or you have found a defect."
        )
    return (
        f"The stock worker started {twice(stock)} executions of tasks that were running or done: "
        "it avoids them only with a timeout longer than any task, and then waits as long after "
        "each failure and crash. With --heartbeat-sqs nothing ran twice, what failed was tried "
        f"again {_seconds(retry_delay(heartbeat))} s later, and the killed worker's task came "
        "back with the short timeout. Next: write `app = install(Celery(...))` and start your "
        "worker with --heartbeat-sqs; README.md tells more."
    )


def _rows() -> Iterator[tuple[str, Callable[[Result], str]]]:
    yield "tasks sent", lambda _: str(len(TASKS))
    yield f"executions ({NEEDED} needed)", lambda result: str(len(result.executions))
    yield "  of which duplicates", lambda result: _alarming(twice(result))
    yield "tasks lost", lambda result: _alarming(lost(result))
    yield "seconds from failure to next try", lambda result: _seconds(retry_delay(result))
    yield "seconds from kill -9 to redelivery", lambda result: _seconds(redelivery_delay(result))
    for kind in CALLS:
        yield f"SQS calls: {kind}", partial(_count, kind)


def _count(kind: str, result: Result) -> str:
    return str(sum(result.calls[operation] for operation in CALLS[kind]))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _alarming(count: int) -> str:
    return f"[bold red]{count}" if count else f"[green]{count}"

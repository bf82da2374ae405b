"""Three workers on twenty groups, some of which are killed, cut off, or lose their keepers."""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import suppress

from tests.acceptance.ordered import Orders, overlaps, steps
from tests.acceptance.processes import keepers_of
from tests.support.workers import ProcessWorker

GROUPS = [f"g{number}" for number in range(20)]
EACH = 30
#: Each tenth message fails once.
FAILS_EVERY = 10
SECONDS = 0.3
#: How long a worker lives.
LIFE_SECONDS = 10.0
#: For how long a worker that is killed in a poll keeps messages hidden.
ATTRIBUTES = {"VisibilityTimeout": "6"}
SETTINGS = {"sqs_heartbeat_threshold": 3}


def run_disturbed(orders: Orders, *, timeout: float, batch: int = 1) -> None:
    """Run all steps of all groups under disturbances, and check the results.

    Args:
        timeout: Seconds until all must have succeeded.
        batch: How many messages a receive asks for.
    """
    for group, number in steps(GROUPS, EACH):
        fails = (number + GROUPS.index(group)) % FAILS_EVERY == 0
        orders.send(group, number, SECONDS, first="fail" if fails else "")
    names = (f"w{number}" for number in itertools.count(1))
    workers = {name: _start(orders, name, batch) for name in itertools.islice(names, 3)}
    ends_at = time.monotonic() + timeout
    disturbances = itertools.cycle(("keeper", "connection", "worker"))
    while _succeeded(orders) < len(GROUPS) * EACH:
        if time.monotonic() > ends_at:
            raise TimeoutError(f"after {timeout} s {orders.ends()}")
        _wait(orders, LIFE_SECONDS / 3)
        name, worker = next(iter(workers.items()))
        match next(disturbances):
            case "keeper":
                for pid in keepers_of(worker.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            case "connection":
                orders.breaks(name).touch()
            case _:
                worker.kill()
                del workers[name]
                new = next(names)
                workers[new] = _start(orders, new, batch)
    orders.wait_until_empty()
    assert overlaps(orders.lines()) == []
    first = {group: list(dict.fromkeys(ends)) for group, ends in orders.ends().items()}
    assert first == {group: list(range(EACH)) for group in GROUPS}


def _start(orders: Orders, name: str, batch: int) -> ProcessWorker:
    return orders.worker(name, "--concurrency", "4", **SETTINGS, sqs_heartbeat_fifo_batch=batch)


def _succeeded(orders: Orders) -> int:
    return sum(len(set(ends)) for ends in orders.ends().values())


def _wait(orders: Orders, seconds: float) -> None:
    """Return after so many seconds, or when all have succeeded."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and _succeeded(orders) < len(GROUPS) * EACH:
        time.sleep(0.1)

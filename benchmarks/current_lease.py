"""Measures the cost of `current_lease`, compared with `time.monotonic()`.

It runs in a task, with as many leases in the worker's table as a worker of ten processes holds
with the default prefetch. Rounds are short, and the best one counts, because a noisy machine
disturbs most of them.

    python -m benchmarks.current_lease
"""

from __future__ import annotations

import argparse
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat import current_lease
from celery_sqs_heartbeat.common.clock import now
from tests.support.leases import lease_of, share_board
from tests.support.tasks import run_in_task, sqs_message

LEASES = 40
BARE = "time.monotonic()"

QUESTIONS: dict[str, Callable[[], Any]] = {
    BARE: time.monotonic,
    "remaining()": current_lease.remaining,
    "ensure_valid()": current_lease.ensure_valid,
    "bool()": current_lease.__bool__,
    "message_id": lambda: current_lease.message_id,
}


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200, help="calls per round")
    parser.add_argument("--rounds", type=int, default=1_000)
    options = parser.parse_args()
    board = share_board(LEASES)
    for number in range(LEASES):
        board.show(lease_of(f"handle-{number}", expires_at=now() + 3_600))
    took = run_in_task(
        lambda: {
            name: min(timeit.repeat(ask, number=options.calls, repeat=options.rounds))
            / options.calls
            for name, ask in QUESTIONS.items()
        },
        sqs_message("handle-7"),
    )
    for name, seconds in took.items():
        print(f"{name:18}{seconds * 1e6:6.2f} us a call{seconds / took[BARE]:7.1f} times {BARE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The keeper's process. A worker starts it; do not start it by hand."""

from __future__ import annotations

import os
import sys

from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.link.keeper_main import run
from celery_sqs_heartbeat.link.watching import ignore_signals


def main(arguments: list[str]) -> int:
    """Run as a worker's keeper, and return the exit status."""
    if len(arguments) != 3 or not all(each.isdecimal() for each in arguments):
        sys.stderr.write(
            "Do not run celery_sqs_heartbeat.keeper yourself. A worker starts it: "
            "celery -A proj worker --heartbeat-sqs\n"
        )
        return 2
    ignore_signals()
    try:
        return run(*map(int, arguments))
    except BrokenLink as error:
        sys.stderr.write(f"sqs-heartbeat: {error}\n")
        return 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Everything is closed by now. A regular exit of Python takes a second on a busy machine. The
    # worker would think that the keeper hangs, and nothing left is worth the wait.
    os._exit(status)

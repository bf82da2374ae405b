"""The process of a keeper. A worker starts it; it is of no use by hand."""

from __future__ import annotations

import os
import sys

from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.link.keeper_main import run


def main(arguments: list[str]) -> int:
    """Be a worker's keeper; return the exit status."""
    if len(arguments) != 2 or not all(each.isdecimal() for each in arguments):
        sys.stderr.write(
            "celery_sqs_heartbeat.keeper is started by a worker: "
            "celery -A proj worker --heartbeat-sqs\n"
        )
        return 2
    try:
        run(*map(int, arguments))
    except BrokenLink as error:
        sys.stderr.write(f"sqs-heartbeat: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Everything has been closed. Python's own end takes a busy machine a second, which the worker
    # would take for a hang, and waits for nothing that is worth it.
    os._exit(status)

"""A consumer without Celery whose keeper is a process. Run it by `python -m` with its task.

It holds one message of a queue with a visibility timeout, and prints a line at each step.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Before everything else, as users do.
    if sys.argv[5:] == ["gevent"]:
        from gevent.monkey import patch_all

        patch_all()
    elif sys.argv[5:] == ["eventlet"]:
        from eventlet import monkey_patch

        monkey_patch()

import ctypes
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

import boto3

from celery_sqs_heartbeat import BotoSqs, LeaseKeeper, LeaseTerms, short_config
from tests.support.waiting import PATIENCE, wait_until


def say(word: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def block(seconds: int) -> None:
    """Let no other thread of this process run."""
    ctypes.PyDLL(None).sleep(seconds)


def wait(seconds: int) -> None:
    """Work until the current folder has a file `end`, or something happens to this process."""
    del seconds
    while not Path("end").exists():
        time.sleep(0.1)


def work(queue_url: str, timeout: int, task: Callable[[int], None], length: int) -> None:
    """Receive a message and do a task while it is held."""
    # The lease is extended after a second.
    terms = LeaseTerms(visibility_timeout=timeout, threshold=timeout - 1)
    sqs = boto3.client("sqs", region_name="us-east-1")
    quick = boto3.client("sqs", region_name="us-east-1", config=short_config(terms.threshold))
    keeper = LeaseKeeper(BotoSqs(quick), terms=terms, process=True)
    keeper.start()
    # On a busy machine, its start may take longer than the visibility timeout.
    wait_until(lambda: keeper.health.last_tick_age is not None)
    try:
        sent_at = keeper.now()
        answer = sqs.receive_message(
            QueueUrl=queue_url,
            VisibilityTimeout=timeout,
            WaitTimeSeconds=1,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        (message,) = answer["Messages"]
        with keeper.hold(queue_url, message, sent_at=sent_at):
            handle = message["ReceiptHandle"]
            say(f"confirmed {keeper.confirm(handle, PATIENCE)}")
            task(length)
            say(f"owned {keeper.owns(handle)}")
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        say(f"unconfirmed {0 if keeper.flush(PATIENCE) else keeper.ending}")
        keeper.stop()
    say("ended")


if __name__ == "__main__":
    # Programs that a shell starts in the background ignore it, and so do those that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.basicConfig(level=logging.INFO)
    work(
        sys.argv[1],
        int(sys.argv[2]),
        {"block": block, "wait": wait}[sys.argv[3]],
        int(sys.argv[4]),
    )

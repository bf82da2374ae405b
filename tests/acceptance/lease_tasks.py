"""Tasks that read their own lease; a worker of `proj` loads them by the setting `imports`."""

from __future__ import annotations

import json
import time

from celery_sqs_heartbeat import LeaseLost, NoLease, current_lease
from tests.acceptance.proj import app, may_end, note

MODULE = __name__


@app.task
def watch(key: str) -> None:
    """Write down the message, and the time left of its lease until the test lets it end."""
    note("message", json.dumps([key, current_lease.message_id, current_lease.receive_count]))
    while not may_end(key):
        note(f"left of {key}", str(current_lease.remaining()))
        time.sleep(0.1)
    note("end", key)


@app.task
def guard(key: str, seconds: float) -> None:
    """Write down why the lease is no longer valid."""
    note("start", key)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            current_lease.ensure_valid(0.1)
            time.sleep(0.05)
    except LeaseLost as error:
        note("lost", json.dumps([str(error), error.message_id, error.remaining]))
    note("end", key)


def ask() -> None:
    try:
        note("lease", str(current_lease.remaining()))
    except NoLease as error:
        note(f"no lease, {bool(current_lease)}", str(error))


app.task(ask, name=f"{MODULE}.ask")
app.task(ask, name=f"{MODULE}.ask_after_an_early_ack", acks_late=False)
app.task(ask, name=f"{MODULE}.ask_opted_out", sqs_heartbeat=False)

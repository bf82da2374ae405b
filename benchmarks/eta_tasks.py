"""The app of `benchmarks.etas`. Its task records how late it starts."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any

from celery import Task

from benchmarks.throughput import app

# Keeps kombu's default `wait_time_seconds`, 10 s.
app.conf.broker_transport_options = {"region": "us-east-1", "is_secure": False}


@app.task(bind=True)
def note_delay(self: Task[Any, Any]) -> None:
    """Record how many seconds after its ETA this task starts."""
    late = time.time() - datetime.fromisoformat(self.request.eta).timestamp()
    with open(os.environ["BENCH_LEDGER"], "a") as ledger:
        ledger.write(f"{late:.4f}\n")

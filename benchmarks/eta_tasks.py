"""The app of `benchmarks.etas`. Its task records how late it starts."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import Any

from celery import Celery, Task

from celery_sqs_heartbeat import install

app = install(Celery("etas", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"region": "us-east-1", "is_secure": False},
)
app.conf.update(json.loads(os.environ.get("BENCH_CONF", "{}")))


@app.task(bind=True)
def note_delay(self: Task[Any, Any]) -> None:
    """Record how many seconds after its ETA this task starts."""
    late = time.time() - datetime.fromisoformat(self.request.eta).timestamp()
    with open(os.environ["BENCH_LEDGER"], "a") as ledger:
        ledger.write(f"{late:.4f}\n")

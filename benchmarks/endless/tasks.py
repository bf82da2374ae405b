"""The app that benchmarks run on the endless server, and its tasks."""

from __future__ import annotations

import json
import os
import struct
import time

from celery import Celery

from celery_sqs_heartbeat import install

#: JSON of further settings, and the file for the times at which `timed` started.
CONF_VARIABLE, STARTS_VARIABLE = "BENCH_CONF", "BENCH_STARTS"
#: One line of that file: the send's and the start's monotonic seconds.
START = struct.Struct("dd")

#: Longer than any benchmark, so that nothing is extended while only throughput is measured.
VISIBILITY_TIMEOUT = 600

#: How each app reaches the server.
TRANSPORT = {
    "region": "us-east-1",
    "is_secure": False,
    "visibility_timeout": VISIBILITY_TIMEOUT,
}

app = install(Celery("bench", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options=TRANSPORT,
    sqs_heartbeat_visibility_timeout=VISIBILITY_TIMEOUT,
)
app.conf.update(json.loads(os.environ.get(CONF_VARIABLE, "{}")))


@app.task
def nothing() -> None:
    """Do nothing, so that only receiving and deleting is measured."""


@app.task
def timed(sent: float) -> None:
    """Record when it starts, and when its message was sent."""
    line = START.pack(sent, time.monotonic())
    # A small write to a file that is open for appending stays in one piece.
    file = os.open(os.environ[STARTS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)

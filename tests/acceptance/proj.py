"""The Celery app that acceptance tests run; its tasks write down what they do."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task, signals
from celery.exceptions import Reject

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.observe import watched
from celery_sqs_heartbeat.signals import lease_capped, lease_lost
from celery_sqs_heartbeat.sqs import queues
from tests.acceptance.ends import ENDS, GREEN_ENDS, SWALLOWED
from tests.acceptance.forgetting import ForgetsJobs
from tests.acceptance.losing import LosesConnection, lose_threads
from tests.support.stalls import StallWatch

app = install(Celery("proj", broker=os.environ.get("CELERY_BROKER_URL")))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1},
)
app.conf.update(json.loads(os.environ.get("PROJ_CONF", "{}")))
for queue in app.conf.broker_transport_options.get("predefined_queues", {}).values():
    # JSON has only strings as keys; kombu looks for receive counts.
    if policy := queue.get("backoff_policy"):
        queue["backoff_policy"] = {int(count): delay for count, delay in policy.items()}


if "PROJ_PYTHON" in os.environ:
    # The interpreter that starts the keeper.
    sys.executable = os.environ["PROJ_PYTHON"]

if "PROJ_SPANS" in os.environ:
    # The oldest environment has no OpenTelemetry.
    from tests.support.spans import write_spans

    write_spans(Path(os.environ["PROJ_SPANS"]))

if "PROJ_INSTRUMENT" in os.environ:
    # Only the environment of the other tests has these packages.
    from tests.acceptance.instrumented import instrument

    instrument(os.environ["PROJ_INSTRUMENT"], Path(os.environ["PROJ_ERRORS"]))

if "PROJ_REFRESH" in os.environ:
    # How long the attributes of queues are used, in seconds.
    queues.REFRESH_SECONDS = float(os.environ["PROJ_REFRESH"])

if "PROJ_DEAF" in os.environ:
    # For how long polls fail before a queue counts as deaf, in seconds.
    watched.DEAF_SECONDS = float(os.environ["PROJ_DEAF"])
if "PROJ_START_SECONDS" in os.environ:
    from celery_sqs_heartbeat.worker import shutdown

    shutdown._START_SECONDS = float(os.environ["PROJ_START_SECONDS"])

if "PROJ_BREAK" in os.environ:
    app.steps["consumer"].add(LosesConnection)

if "PROJ_FORGET" in os.environ:
    app.steps["consumer"].add(ForgetsJobs)

if "PROJ_QUIT" in os.environ:
    from tests.acceptance.quitting import quit_during

    quit_during(os.environ["PROJ_QUIT_DURING"], Path(os.environ["PROJ_QUIT"]))


if "PROJ_KILL_LATE" in os.environ:
    from tests.support.insides import kill_late

    kill_late(float(os.environ["PROJ_KILL_LATE"]))


def note(what: str, key: str) -> None:
    line = json.dumps({"what": what, "key": key, "at": time.monotonic(), "pid": os.getpid()})
    with open(os.environ["PROJ_LEDGER"], "a") as ledger:
        ledger.write(line + "\n")


def starts(key: str) -> int:
    """Return how often a task has written down its start, as far as is known."""
    with open(os.environ["PROJ_LEDGER"]) as ledger:
        notes = [json.loads(line) for line in ledger]
    return sum(note["what"] == "start" and note["key"] == key for note in notes)


def may_end(key: str) -> bool:
    """Return whether the test lets a task end."""
    return os.path.exists(f"{os.environ['PROJ_LEDGER']}.{key}")


def wait_to_end(key: str) -> None:
    """Return once the test lets a task end."""
    while not may_end(key):
        time.sleep(0.02)


if "PROJ_STALL" in os.environ:
    # The event loop stalls when a task is received, until the test lets this key end.
    signals.task_received.connect(lambda **_: wait_to_end(os.environ["PROJ_STALL"]), weak=False)


@signals.worker_ready.connect
def note_stalls(**_: Any) -> None:
    """Write down when the main process stalled."""
    if "PROJ_LEDGER" in os.environ:
        StallWatch(lambda stall: note("stall", str(stall.seconds))).start()


@signals.worker_ready.connect
def break_pool(sender: Any, **_: Any) -> None:
    """Break a pool of threads if a test requests that."""
    if "PROJ_NO_THREADS" in os.environ:
        lose_threads(sender.pool, after=0)


@lease_lost.connect
@lease_capped.connect
def note_loss(signal: Any, task: str, cause: str, held_for: float, **_: Any) -> None:
    assert held_for > 0
    note(signal.name, f"{task.rpartition('.')[2]} {cause}")


@app.task
def work(key: str, seconds: float = 0.0) -> None:
    note("start", key)
    time.sleep(seconds)
    note("end", key)


@app.task
def spin(key: str) -> None:
    """Lets no other greenlet run until the test lets it end."""
    note("start", key)
    while not may_end(key):
        pause = time.monotonic() + 0.1
        while time.monotonic() < pause:
            pass
    note("end", key)


@app.task(acks_on_failure_or_timeout=False)
def fail(key: str, seconds: float = 0.0) -> None:
    note("start", key)
    time.sleep(seconds)
    raise ValueError(key)


@app.task(acks_on_failure_or_timeout=False)
def hold(key: str, fails: bool = False) -> None:
    """Runs until the test lets it end."""
    note("start", key)
    wait_to_end(key)
    if fails:
        raise ValueError(key)
    note("end", key)


@app.task(acks_on_failure_or_timeout=False)
def depend(key: str) -> None:
    """Fails until the test says that what it depends on is back: `let_end("dependency")`."""
    note("start", key)
    if not may_end("dependency"):
        raise ConnectionError(key)
    note("end", key)


@app.task
def hold_each(key: str) -> None:
    """Runs until the test lets this run of it end: `let_end("a 1")` the first of "a"."""
    note("start", key)
    wait_to_end(f"{key} {starts(key)}")
    note("end", key)


@app.task(acks_on_failure_or_timeout=False)
def end_by(key: str) -> None:
    """Ends as the key says, see `ends`."""
    note("start", key)
    {**ENDS, **GREEN_ENDS, **SWALLOWED}[key]()


@app.task
def end_and_ack(key: str, way: str) -> None:
    """Ends as `way` says. Its failures are acked, which is Celery's default."""
    note("start", key)
    ENDS[way]()


@app.task
def reject(key: str, requeue: bool) -> None:
    note("start", key)
    raise Reject(key, requeue=requeue)


@app.task(acks_on_failure_or_timeout=False, time_limit=8)
def overrun(key: str) -> None:
    note("start", key)
    time.sleep(30)


@app.task(acks_on_failure_or_timeout=False)
def ignore_signals(key: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("start", key)
    wait_to_end(key)


@app.task(bind=True, reject_on_worker_lost=True)
def die(self: Task[Any, Any], key: str) -> None:
    note("start", key)
    receives = self.request.properties["delivery_info"]["sqs_message"]["Attributes"]
    if int(receives["ApproximateReceiveCount"]) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", key)


@app.task
def slow_once(key: str, seconds: float) -> None:
    """Takes its time when it runs for the first time only."""
    note("start", key)
    if starts(key) == 1:
        time.sleep(seconds)
    note("end", key)


if "PROJ_SLOW_ONCE" in os.environ:
    slow_once.sqs_heartbeat = json.loads(os.environ["PROJ_SLOW_ONCE"])


@app.task(sqs_heartbeat=False)
def unleased(key: str) -> None:
    note("start", key)
    wait_to_end(key)
    note("end", key)


if "PROJ_BATCHES" in os.environ:
    # Only one environment has celery-batches.
    from tests.acceptance import batching  # noqa: F401

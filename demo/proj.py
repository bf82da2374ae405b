"""The Celery project whose workers the demo watches."""

from __future__ import annotations

import bz2
import lzma
import os
import signal
import threading
import time
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from celery import Celery, signals

from celery_sqs_heartbeat import install
from demo.ledger import Event
from demo.recording import recorded

COMPRESSORS = {"zlib": zlib.compress, "bz2": bz2.compress, "lzma": lzma.compress}
#: How much the pool's processes give way to the others of the machine.
NICENESS = 10
#: Environment variable with the demo's process id; without it a worker stays until it is ended.
PARENT = "DEMO_PID"
#: Environment variable with the folder of the workers' journal, if they are to write one.
JOURNAL = "DEMO_JOURNAL"

app = install(Celery("demo"))
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        # The demo's server answers one call at a time: a long poll would hold up the rest.
        "wait_time_seconds": 0,
        "polling_interval": 0.2,
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    # What fails stays in the queue and is delivered again.
    task_acks_on_failure_or_timeout=False,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    # Only our worker knows what that is.
    sqs_heartbeat_journal=os.environ.get(JOURNAL),
    # Its queue would be polled too, and show up among the calls.
    worker_enable_remote_control=False,
)


class NotYet(Exception):
    """Raised by a task whose time to succeed has not come."""


@signals.worker_ready.connect
def _end_with_the_demo(**_: Any) -> None:
    """End with a demo that was killed: kombu would poll the server that is gone for ever."""
    if PARENT in os.environ:
        demo = int(os.environ[PARENT])
        threading.Thread(target=_kill_orphan, args=(demo,), daemon=True).start()


def _kill_orphan(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


@signals.worker_process_init.connect
def _give_way(**_: Any) -> None:
    """Leave the server and the workers' main processes their turn on a machine of few cores."""
    os.nice(NICENESS)


@app.task
def archive(package: str, seconds: float) -> dict[str, Any]:
    """Compress the modules of a standard library package, round after round, for some time."""
    with recorded(package):
        source = _source(package)
        rounds = 0
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            sizes = {name: len(compress(source)) for name, compress in COMPRESSORS.items()}
            rounds += 1
        best = min(sizes, key=sizes.__getitem__)
        return {
            "bytes": len(source),
            "best": best,
            "ratio": round(len(source) / sizes[best], 1),
            "rounds": rounds,
        }


@app.task
def flaky(name: str, failures: int) -> None:
    """Fail the first times, as a task does whose remote service is down for a while."""
    with recorded(name) as before:
        failed = sum(run.task == name and run.end is Event.FAILED for run in before)
        if failed < failures:
            raise NotYet(f"failure {failed + 1} of {failures}")


def _source(package: str) -> bytes:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))

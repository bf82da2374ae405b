"""The Celery project that the demo's workers run."""

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
#: The nice value of the pool's processes.
NICENESS = 10
#: The environment variable with the demo's process id. Without it, a worker does not watch for
#: the demo's end.
PARENT = "DEMO_PID"
#: The environment variable with the folder of the workers' journal. Without it there is none.
JOURNAL = "DEMO_JOURNAL"

app = install(Celery("demo"))
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        # The demo's server answers one call at a time, so a long poll would delay the others.
        "wait_time_seconds": 0,
        "polling_interval": 0.2,
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    # The message of a failed task stays in the queue and is delivered again.
    task_acks_on_failure_or_timeout=False,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    # A stock worker ignores this setting.
    sqs_heartbeat_journal=os.environ.get(JOURNAL),
    # Its queue would be polled, too, and its calls would be counted.
    worker_enable_remote_control=False,
)


class NotYet(Exception):
    """Raised by a task that must not succeed yet."""


@signals.worker_ready.connect
def _end_with_the_demo(**_: Any) -> None:
    """Exit if the demo was killed. kombu would poll its missing server indefinitely."""
    if PARENT in os.environ:
        demo = int(os.environ[PARENT])
        threading.Thread(target=_kill_orphan, args=(demo,), daemon=True).start()


def _kill_orphan(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


@signals.worker_process_init.connect
def _give_way(**_: Any) -> None:
    """Run at a lower priority than the server and the workers' main processes."""
    os.nice(NICENESS)


@app.task
def archive(package: str, seconds: float) -> dict[str, Any]:
    """Compress the modules of a standard library package repeatedly for some time."""
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
    """Fail `failures` times, as a task does while its remote service is down."""
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

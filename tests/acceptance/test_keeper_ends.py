"""A keeper outlives its worker only until it has deleted or released the remaining messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.acceptance.processes import keepers_of, keepers_on, living, pool_of
from tests.acceptance.scene import LONG, Scene
from tests.support.environment import SAFE_ENV
from tests.support.faults import delay
from tests.support.stalls import stood_still
from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT

NewScene = Callable[..., Scene]
#: Runs four workers in turn in its own process, one task each. It ends only if none leaves a child,
#: a thread or our `Task.retry`, and no later one leaves more descriptors than the first.
EMBEDDED = """
import functools, gc, sys, threading, time
import psutil
from celery import Task
from celery.contrib.testing.worker import start_worker
from celery.worker import state
from tests.acceptance.proj import app, starts

def wait_until(condition):
    while not condition():
        time.sleep(0.02)

def count():
    gc.collect()
    return psutil.Process().num_fds()

descriptors, retry = 0, vars(Task)["retry"]
pool, how = sys.argv[1:]
app.conf.worker_prefetch_multiplier = 1
# Ten seconds by default, which is too little on a busy machine.
options = {"shutdown_timeout": 120, "perform_ping_check": False, "heartbeat_sqs": True}
for key in "abcd":
    app.send_task("tests.acceptance.proj.work", [key])
    with start_worker(app, pool=pool, **options) as worker:
        wait_until(lambda: starts(key))
        assert vars(Task)["retry"] is not retry
        if key == "d":
            # As another package may do.
            Task.retry = retry = functools.wraps(Task.retry)(functools.partial(Task.retry))
        if how == "warm":
            state.should_stop = 0
            wait_until(worker.blueprint.shutdown_complete.is_set)
    state.should_stop = None
    del worker
    assert vars(Task)["retry"] is retry
    wait_until(lambda: (psutil.Process().children(), threading.active_count()) == ([], 1))
    descriptors = descriptors or count()
    wait_until(lambda: count() <= descriptors)
"""
#: How long a process of a killed worker may still live, in seconds: less than the 15 s for which a
#: keeper that can't release its messages would try.
GONE_AFTER = 12.0


def test_after_a_signal_to_all_processes_the_keeper_deletes_messages_and_exits(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1")
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    scene.proxy.rule("DeleteMessageBatch", delay(0.5))
    (keeper,) = keepers_of(worker.pid)
    # As Ctrl+C in a terminal does.
    os.killpg(worker.pid, signal.SIGINT)
    os.kill(keeper, signal.SIGINT)
    worker.wait_for_log("Warm shutdown")
    assert living([keeper]) == [keeper]
    scene.let_end("a")
    # Celery's own for Ctrl+C.
    assert worker.wait_for_exit() == 1
    assert scene.counts() == (0, 0)
    assert scene.keys("start") == scene.keys("end") == ["a"]
    assert "the keeper's process" not in worker.logs()
    assert keepers_on(scene) == living([keeper]) == []


@pytest.mark.parametrize("order", ["group", "pool keeper main"])
def test_no_process_is_left_however_a_worker_is_killed(new_scene: NewScene, order: str) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "2")
    scene.send("hold", "a")
    scene.wait_for_notes("start", 1)
    (keeper,), pool = keepers_of(worker.pid), pool_of(worker.pid)
    kill = {
        "main": lambda: os.kill(worker.pid, signal.SIGKILL),
        "group": lambda: os.killpg(worker.pid, signal.SIGKILL),
        "keeper": lambda: os.kill(keeper, signal.SIGKILL),
        "pool": lambda: os.kill(pool[0], signal.SIGKILL),
    }
    for each in order.split():
        # The keeper may have exited when it is its turn.
        with suppress(ProcessLookupError):
            kill[each]()
    killed_at = time.monotonic()
    scene.wait_until(lambda: living([keeper, *pool]) == keepers_on(scene) == [])
    gone_at = time.monotonic()
    assert gone_at - killed_at < GONE_AFTER + stood_still(scene.stalls, killed_at, gone_at)


@pytest.mark.parametrize(("pool", "how"), [("solo", "cold"), ("threads", "warm")])
def test_embedded_workers_that_have_ended_leave_nothing_in_their_process(
    new_scene: NewScene, pool: str, how: str
) -> None:
    scene = new_scene(attributes=LONG)
    env = {
        "CELERY_BROKER_URL": scene.proxy.broker_url,
        "PROJ_LEDGER": str(scene.ledger),
        "PROJ_CONF": json.dumps({"task_default_queue": scene.name}),
    }
    command = [sys.executable, "-c", EMBEDDED, pool, how]
    env = {**os.environ, **SAFE_ENV, **env}
    subprocess.run(command, env=env, cwd=ROOT, check=True, timeout=4 * PATIENCE)
    assert scene.keys("end") == ["a", "b", "c", "d"]
    assert scene.counts() == (0, 0)

"""Keepers and workers that are killed: who keeps or releases what, and no process is left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.lateness import server_stalls
from tests.acceptance.processes import keepers_of, keepers_on, living, pool_of
from tests.acceptance.record import CHANGE, receives, release_calls, wait_for_extensions
from tests.acceptance.scene import LONG, OFTEN, STEADY, Scene
from tests.support.environment import SAFE_ENV
from tests.support.faults import Body, Effect, delay, forward_after
from tests.support.stalls import stood_still
from tests.support.waiting import PATIENCE
from tests.support.workers import ROOT, ProcessWorker

NewScene = Callable[..., Scene]
HELD = ["a", "b", "c"]
#: An interpreter that exits after 0.3 s, once the file DYING exists.
FRAGILE = """#!/bin/sh
if [ -e {dying} ]; then sleep 0.3; echo broken >&2; exit 3; fi
exec {python} "$@"
"""


def test_another_keeper_takes_over_during_deletes_and_releases_and_nothing_runs_twice(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=4, attributes=STEADY)
    worker = scene.worker("-c", "6", conf=OFTEN)
    for key in HELD:
        scene.send("hold", key)
    wait_for_extensions(scene, 1, since=0.0, messages=len(HELD))
    is_killed = threading.Event()
    scene.proxy.rule("DeleteMessageBatch", forward_after(is_killed))
    scene.proxy.rule(CHANGE, only_releases(forward_after(is_killed)))
    for number in range(3):
        scene.send("work", f"short {number}")
        scene.send("fail", f"bad {number}")
    scene.wait_until(lambda: is_under_way(scene, "DeleteMessageBatch") and is_releasing(scene))
    scene.proxy.clear()
    (keeper,) = keepers_of(worker.pid)
    os.kill(keeper, signal.SIGKILL)
    is_killed.set()
    scene.wait_until(lambda: set(keepers_of(worker.pid)) - {keeper})
    scene.wait_until(lambda: living([keeper]) == [])
    assert len(keepers_of(worker.pid)) == 1
    # Until the timeouts that the first keeper requested would have ended.
    ended_at = time.monotonic()
    wait_for_extensions(scene, 2, since=ended_at, messages=len(HELD))
    scene.wait_until(lambda: time.monotonic() > ended_at + int(STEADY["VisibilityTimeout"]))
    for key in HELD:
        scene.let_end(key)
    scene.wait_until_empty()
    assert sum(scene.counts(scene.dead_letters)) == 3
    short, bad = [f"short {number}" for number in range(3)], [f"bad {n}" for n in range(3)]
    starts = Counter(scene.keys("start"))
    assert [starts[key] for key in (*HELD, *short)] == [1] * len([*HELD, *short])
    # The dead keeper's open poll may receive one. Then the next receive does not start it, either:
    # its release is unanswered.
    assert {starts[key] for key in bad} <= {2, 3, 4}
    assert scene.keys("end") == sorted([*HELD, *short])
    assert scene.late_extensions() == []


@pytest.fixture
def fragile(tmp_path: Path) -> Fragile:
    return Fragile(tmp_path)


def test_a_worker_whose_first_keeper_dies_at_its_start_receives_nothing_and_exits_with_one_error(
    new_scene: NewScene, fragile: Fragile
) -> None:
    fragile.die()
    scene = new_scene(attributes=LONG)
    scene.send("work", "a")
    worker = scene.worker("-c", "2", env=fragile.env, wait=False)
    assert worker.wait_for_exit() == 1
    assert scene.calls("ReceiveMessage") == []
    assert scene.counts() == (1, 0)
    (line,) = [line for line in worker.logs().splitlines() if "CRITICAL" in line]
    assert "the keeper's process ended (exit status 3) before it was ready" in line
    assert "Traceback" not in worker.logs()


def test_a_worker_whose_keepers_only_die_now_settles_its_messages_itself_and_exits(
    new_scene: NewScene, fragile: Fragile
) -> None:
    scene = new_scene(attributes=LONG)
    conf = {"sqs_heartbeat_keeper_timeout": 15, "worker_prefetch_multiplier": 3}
    worker = scene.worker("-c", "1", conf=conf, env=fragile.env)
    for key in HELD:
        scene.send("hold", key)
    scene.wait_until(lambda: scene.counts() == (0, 3) and scene.keys("start"))
    fragile.kill_keeper(worker)
    (first,) = scene.keys("start")
    scene.let_end(first)
    second = scene.wait_for_notes("start", 2)[1].key
    # The first is deleted, and the third released.
    scene.wait_until(lambda: scene.counts() == (1, 1))
    scene.let_end(second)
    assert worker.wait_for_exit() == 1
    assert scene.keys("start") == scene.keys("end") == sorted([first, second])
    assert scene.counts() == (1, 0)
    (line,) = [line for line in worker.logs().splitlines() if "CRITICAL" in line]
    assert "the last one ended (exit status 3); without a keeper the worker ends" in line


def test_a_keeper_starts_if_the_worker_does_not_know_its_interpreter(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", env={"PROJ_PYTHON": ""})
    scene.send("work", "a")
    scene.wait_until_empty()
    assert scene.keys("end") == ["a"]


class Fragile:
    """An interpreter for keepers, and what it needs to make them die at their start."""

    def __init__(self, folder: Path) -> None:
        self._dying = folder / "dying"
        self._python = folder / "python"
        command = FRAGILE.format(dying=shlex.quote(str(self._dying)), python=sys.executable)
        self._python.write_text(command)
        self._python.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a worker that uses it."""
        return {"PROJ_PYTHON": str(self._python)}

    def die(self) -> None:
        """Make each later keeper die before it is ready."""
        self._dying.touch()

    def kill_keeper(self, worker: ProcessWorker) -> None:
        """Kill a worker's keeper. Return once the next one has died, too."""
        self.die()
        (keeper,) = keepers_of(worker.pid)
        os.kill(keeper, signal.SIGKILL)
        worker.wait_for_log("ended (exit status 3)")


def is_under_way(scene: Scene, operation: str) -> bool:
    return any(call.answered_at is None for call in scene.calls(operation))


def is_releasing(scene: Scene) -> bool:
    return any(releases(call.body) for call in scene.calls(CHANGE) if call.answered_at is None)


def releases(body: Body) -> bool:
    """Return whether a call makes a message visible."""
    return any(entry["VisibilityTimeout"] == 0 for entry in body["Entries"])


def only_releases(effect: Effect) -> Effect:
    """Apply an effect to releases, but to no call that only extends leases."""
    return lambda body, forward: effect(body, forward) if releases(body) else forward(body)


HALF_A_MINUTE = {"VisibilityTimeout": "30"}
#: Extended about every second.
EAGER = {"sqs_heartbeat_threshold": 29}
KEYS = ["a", "b", "c", "d"]
#: How long a killed worker's messages may stay hidden, in seconds.
SOON = 2.0
#: How long a poll of `proj` waits at SQS, in seconds.
POLL = 1.0


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent", "eventlet"])
def test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds(
    new_scene: NewScene, pool: str
) -> None:
    scene = new_scene(attributes=HALF_A_MINUTE)
    # All before it starts: one poll receives them. It has no room for more, so no open poll can
    # receive the released messages.
    for key in KEYS:
        scene.send("hold", key)
    running = 1 if pool == "solo" else 2
    conf = {"worker_prefetch_multiplier": 4 // running, **EAGER}
    worker = scene.worker("-c", str(running), "-P", pool, conf=conf)
    started = [note.key for note in scene.wait_for_notes("start", running)]
    # By then its keeper has started, even on a busy machine.
    wait_for_extensions(scene, 1, since=0.0, messages=len(KEYS))
    processes = pool_of(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    # The processes of its pool end with it.
    scene.wait_until(lambda: living(processes) == [])
    scene.wait_until(lambda: scene.counts()[0] == len(KEYS))
    assert seconds_until_released(scene, killed_at) < SOON
    scene.wait_until(lambda: keepers_on(scene) == [])
    for key in KEYS:
        scene.let_end(key)
    scene.worker("-c", "4", "-P", "threads")
    scene.wait_until_empty()
    assert scene.keys("start") == sorted([*started, *KEYS])
    assert scene.keys("end") == KEYS
    assert set(Counter(receives(scene)).values()) == {2}


def seconds_until_released(scene: Scene, killed_at: float) -> float:
    """Return when the last release was answered, without the time in which a process stalled."""
    releases = [
        (entry["ReceiptHandle"], call.answered_at or 0.0)
        for call in release_calls(scene)
        for entry in call.entries
        if entry["VisibilityTimeout"] == 0
    ]
    assert len(releases) == len(dict(releases)) == len(KEYS)
    last = max(at for _, at in releases)
    stalls = [*scene.stalls, *server_stalls(scene.calls())]
    return last - killed_at - stood_still(stalls, killed_at, last)


def test_an_open_poll_of_a_killed_worker_does_not_make_its_messages_dead_letters(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=HALF_A_MINUTE)
    scene.send("hold", "a")
    # It has room for more messages.
    worker = scene.worker("-c", "1", "-P", "threads", conf=EAGER)
    wait_for_extensions(scene, 1, since=0.0)
    scene.wait_until(lambda: scene.calls("ReceiveMessage")[-1].answered_at is None)
    worker.kill()
    scene.wait_until(lambda: scene.counts() == (1, 0))
    # The poll has ended, and received nothing.
    (release,) = release_calls(scene)
    (entry,) = release.entries
    poll = scene.calls("ReceiveMessage")[-1]
    assert (release.forwarded_at or 0.0) + entry["VisibilityTimeout"] >= poll.started_at + POLL
    assert len(receives(scene)) == 1


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

"""What fails, and how many seconds later the message is received again.

Each scenario has its own queue and worker, so all of them can run at the same time. They return
their figures by name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping

from benchmarks.stage import Stage, received_again, sent_messages, taking_over
from tests.acceptance.processes import keepers_of
from tests.acceptance.record import receives, wait_for_extensions
from tests.acceptance.scene import Scene
from tests.support.recording import CHANGE, confirmed
from tests.support.workers import ProcessWorker

#: From SIGTERM to SIGKILL, in seconds. Kubernetes waits for 30 s, which changes no figure here.
GRACE_SECONDS = 2.0

#: How long it watches for what should not happen, in seconds.
WATCH_SECONDS = 2.5

#: Seconds, except for two of the lost connection.
Figures = Mapping[str, float]
#: Runs on a stage with a visibility timeout in seconds, and with or without our heartbeat.
Scenario = Callable[[Stage, int, bool], Figures]

KILLED = "worker killed (SIGKILL)"
WAITING = "warm shutdown (SIGTERM), message that waits"
OUTLASTING = "task outlasts the shutdown, then SIGKILL"
FAILED = "task fails"
LOST = "connection lost, message that waits"
#: How often the message of the task was received again that runs through a lost connection.
TWICE = "redeliveries of a running task"
#: Whether the worker receives again after a lost connection: 0 or 1.
POLLS = "polls again"


def killed(stage: Stage, timeout: int, ours: bool) -> Figures:
    """Kill a worker that runs a task."""
    scene = stage.scene(timeout)
    worker = _start(scene, timeout, ours, prefetch=1)
    scene.send("hold", "a")
    _wait_until_held(scene, 1, ours)
    (message,) = sent_messages(scene)
    worker.kill()
    killed_at = time.monotonic()
    with taking_over(scene):
        return {KILLED: received_again(scene, message, killed_at)}


def shut_down(stage: Stage, timeout: int, ours: bool) -> Figures:
    """Shut a worker down that runs a task and holds another, and kill it after a while."""
    scene = stage.scene(timeout)
    worker = _start(scene, timeout, ours, prefetch=2)
    for key in ("a", "b"):
        scene.send("hold", key)
    _wait_until_held(scene, 2, ours)
    running, waiting = sent_messages(scene)
    worker.kill("SIGTERM")
    asked_at = time.monotonic()
    with taking_over(scene):
        time.sleep(GRACE_SECONDS)
        worker.kill()
        killed_at = time.monotonic()
        return {
            WAITING: received_again(scene, waiting, asked_at),
            OUTLASTING: received_again(scene, running, killed_at),
        }


def failed(stage: Stage, timeout: int, ours: bool) -> Figures:
    """Let a task fail."""
    # Without a redrive policy, kombu 5.7 deletes the message of a failed task.
    scene = stage.scene(timeout, max_receive_count=5)
    _start(scene, timeout, ours, prefetch=1)
    scene.send("hold", "f", True)
    _wait_until_held(scene, 1, ours)
    (message,) = sent_messages(scene)
    scene.let_end("f")
    return {FAILED: received_again(scene, message, time.monotonic())}


def disconnected(stage: Stage, timeout: int, ours: bool) -> Figures:
    """Let a worker lose the connection to its broker."""
    scene = stage.scene(timeout)
    to_break = scene.ledger.with_suffix(".break")
    worker = _start(scene, timeout, ours, prefetch=2, env={"PROJ_BREAK": str(to_break)})
    for key in ("a", "b"):
        scene.send("hold", key)
    _wait_until_held(scene, 2, ours)
    running, waiting = sent_messages(scene)
    to_break.touch()
    worker.wait_for_log("lost on purpose")
    lost_at = time.monotonic()
    with taking_over(scene):
        seconds = received_again(scene, waiting, lost_at)
        time.sleep(WATCH_SECONDS)
    polls = len(scene.calls("ReceiveMessage"))
    time.sleep(WATCH_SECONDS)
    return {
        LOST: seconds,
        TWICE: receives(scene).count(running) - 1,
        POLLS: len(scene.calls("ReceiveMessage")) > polls,
    }


def keeper_killed(stage: Stage, timeout: int) -> tuple[float, Callable[[], int]]:
    """Kill the keeper of a worker whose task runs on.

    Returns:
        The seconds until another keeper has extended the lease. And what waits until another
        visibility timeout would have ended, and returns how often the message was received again.
    """
    scene = stage.scene(timeout)
    worker = scene.worker("-c", "1", conf=_often(timeout))
    scene.send("hold", "a")
    _wait_until_held(scene, 1, ours=True)
    (keeper,) = keepers_of(worker.pid)
    os.kill(keeper, signal.SIGKILL)
    killed_at = time.monotonic()
    # Called before it dies: not by another one.
    sent_before = len(scene.calls(CHANGE))
    wait_for_extensions(scene, 1, since=killed_at)
    extended_at = min(
        call.answered_at or 0.0 for call in scene.calls(CHANGE)[sent_before:] if confirmed(call)
    )

    def redeliveries() -> int:
        time.sleep(max(0.0, killed_at + timeout + WATCH_SECONDS - time.monotonic()))
        return len(receives(scene)) - 1

    return extended_at - killed_at, redeliveries


def _often(timeout: int) -> dict[str, int]:
    """Return settings with which a lease is extended each second, so an extension is due soon."""
    return {"sqs_heartbeat_threshold": timeout - 1}


#: Those in which the visibility timeout decides, for the picture.
BY_TIMEOUT: tuple[Scenario, ...] = (killed, failed)
#: The others. That of a killed keeper is apart: a stock worker has none.
OTHERS: tuple[Scenario, ...] = (shut_down, disconnected)


def _start(
    scene: Scene,
    timeout: int,
    ours: bool,
    *,
    prefetch: int,
    env: Mapping[str, str] | None = None,
) -> ProcessWorker:
    conf = {"worker_prefetch_multiplier": prefetch, **(_often(timeout) if ours else {})}
    return scene.worker("-c", "1", flag=ours, conf=conf, env=env)


def _wait_until_held(scene: Scene, messages: int, ours: bool) -> None:
    """Wait until the worker holds all messages, and has no room for more."""
    scene.wait_for_notes("start", 1)
    scene.wait_until(lambda: len(receives(scene)) >= messages)
    if ours:
        # By then its keeper has started, even on a busy machine.
        wait_for_extensions(scene, 1, since=0.0, messages=messages)

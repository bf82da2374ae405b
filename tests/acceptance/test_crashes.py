"""Workers that are killed: their keeper, a separate process, releases their messages.

The queues hide a message for half a minute. A message that is visible sooner was released.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import celery
import pytest

from tests.acceptance.lateness import server_stalls
from tests.acceptance.orders import MODULE as ORDERS
from tests.acceptance.orders import order
from tests.acceptance.process_tasks import MODULE
from tests.acceptance.processes import keepers_on, living, pool_of
from tests.acceptance.record import receives, release_calls, wait_for_extensions
from tests.acceptance.scene import Scene
from tests.support.stalls import stood_still
from tests.support.workers import ProcessWorker

NewScene = Callable[..., Scene]
HALF_A_MINUTE = {"VisibilityTimeout": "30"}
#: Extended about every second.
EAGER = {"sqs_heartbeat_threshold": 29}
KEYS = ["a", "b", "c", "d"]
#: Prefork whose processes are not forked. Celery has this setting since 5.7.
SPAWNED = {"worker_pool_start_method": "spawn"}
SPAWN = ["spawn"] if celery.VERSION >= (5, 7) else []
#: How long a killed worker's messages may stay hidden, in seconds.
SOON = 2.0
#: How long a poll of `proj` waits at SQS, in seconds.
POLL = 1.0


@pytest.fixture
def scene(new_scene: NewScene) -> Scene:
    """A queue of half a minute."""
    return new_scene(attributes=HALF_A_MINUTE)


@pytest.fixture
def full_worker(scene: Scene) -> Callable[..., ProcessWorker]:
    """Start a worker; wait until it runs as many of four messages as it can and holds the rest.

    It has no room for more, so no open poll can receive the released messages.
    """

    def start(pool: str, task: str = "hold") -> ProcessWorker:
        running = 1 if pool == "solo" else 2
        # All before it starts: one poll receives them.
        scene.send(task, KEYS[0])
        for key in KEYS[1:]:
            scene.send("hold", key)
        spawned = SPAWNED if pool == "spawn" else {}
        worker = scene.worker(
            *("-c", str(running), "-P", "prefork" if spawned else pool),
            conf={
                "imports": [MODULE],
                "worker_prefetch_multiplier": 4 // running,
                **EAGER,
                **spawned,
            },
        )
        scene.wait_for_notes("start", running)
        # By then its keeper has started, even on a busy machine.
        wait_for_extensions(scene, 1, since=0.0, messages=len(KEYS))
        return worker

    return start


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param("prefork", marks=pytest.mark.oldest),
        *("threads", "solo", "gevent", "eventlet"),
        *SPAWN,
    ],
)
def test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds(
    scene: Scene, full_worker: Callable[..., ProcessWorker], pool: str
) -> None:
    worker = full_worker(pool)
    started = scene.keys("start")
    # With the processes of its pool.
    worker.kill()
    assert_back_soon(scene, time.monotonic(), KEYS)
    assert_received_once_more(scene, started)


@pytest.mark.parametrize("pool", ["prefork", *SPAWN])
def test_pool_processes_end_when_their_main_process_is_killed(
    scene: Scene, full_worker: Callable[..., ProcessWorker], pool: str
) -> None:
    worker = full_worker(pool)
    processes, started = pool_of(worker.pid), scene.keys("start")
    # Python watches the processes that it spawns with another process.
    assert len(processes) >= 2
    os.kill(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    scene.wait_until(lambda: living(processes) == [])
    assert_back_soon(scene, killed_at, KEYS)
    assert_received_once_more(scene, started)


@pytest.mark.parametrize("renewed_by", ["--max-tasks-per-child", "restart_pool"])
def test_messages_of_a_renewed_pool_are_visible_again_as_soon_when_its_worker_is_killed(
    scene: Scene, renewed_by: str
) -> None:
    limit = (renewed_by, "1") if renewed_by.startswith("--") else ()
    worker = scene.worker(
        *("-c", "2", *limit),
        conf={
            "imports": [MODULE, ORDERS],
            "worker_pool_restarts": True,
            "worker_prefetch_multiplier": 1,
            **EAGER,
        },
    )
    for key in ("x", "y"):
        scene.send("hold", key)
    old = {note.pid for note in scene.wait_for_notes("start", 2)}
    if not limit:
        # Each process ends after its current task.
        order(scene, renewed_by)
    for key in ("x", "y"):
        scene.let_end(key)
    scene.wait_until(lambda: living(list(old)) == [])
    scene.wait_until_empty()
    renewed_at = time.monotonic()
    held = KEYS[:2]
    for key in held:
        scene.send("hold", key)
    running = scene.wait_for_notes("start", 4)[2:]
    wait_for_extensions(scene, 1, since=renewed_at, messages=len(held))
    pool = pool_of(worker.pid)
    assert {note.pid for note in running} <= set(pool) - old
    os.kill(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    scene.wait_until(lambda: living(pool) == [])
    assert_back_soon(scene, killed_at, held)
    scene.wait_until(lambda: keepers_on(scene) == [])


def kill_with_an_open_poll(scene: Scene) -> None:
    """Kill a worker that runs a task, and has room for more messages."""
    scene.send("hold", "a")
    worker = scene.worker("-c", "1", "-P", "threads", conf=EAGER)
    wait_for_extensions(scene, 1, since=0.0)
    scene.wait_until(lambda: scene.calls("ReceiveMessage")[-1].answered_at is None)
    worker.kill()


def test_what_a_killed_worker_held_is_visible_at_once_although_its_poll_is_open(
    scene: Scene,
) -> None:
    kill_with_an_open_poll(scene)
    scene.wait_until(lambda: keepers_on(scene) == [])
    # The first release went to the open poll. Its keeper has read it, and released the message.
    releases = [entry for call in release_calls(scene) for entry in call.entries]
    assert [entry["VisibilityTimeout"] for entry in releases] == [0] * len(releases)
    assert len(releases) == len(receives(scene)) <= 2
    assert scene.counts() == (1, 0)


def test_an_open_poll_of_a_killed_worker_does_not_make_its_messages_dead_letters(
    new_scene: Callable[..., Scene],
) -> None:
    scene = new_scene(max_receive_count=2, attributes={"VisibilityTimeout": "30"})
    kill_with_an_open_poll(scene)
    scene.wait_until(lambda: scene.counts() == (1, 0))
    # The poll has ended, and received nothing.
    (release,) = release_calls(scene)
    (entry,) = release.entries
    poll = scene.calls("ReceiveMessage")[-1]
    assert (release.forwarded_at or 0.0) + entry["VisibilityTimeout"] >= poll.started_at + POLL
    assert len(receives(scene)) == 1


@pytest.fixture
def end_daemons(scene: Scene) -> Iterator[None]:
    """End the daemons that tasks left."""
    yield
    for note in scene.notes("daemon"):
        os.kill(note.pid, signal.SIGKILL)


@pytest.mark.usefixtures("end_daemons")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_daemon_that_a_task_left_does_not_count_as_a_living_worker(
    scene: Scene, full_worker: Callable[..., ProcessWorker], pool: str
) -> None:
    worker = full_worker(pool, "leave_daemon")
    (daemon,) = scene.wait_for_notes("daemon", 1)
    worker.kill()
    assert_back_soon(scene, time.monotonic(), KEYS)
    assert living([daemon.pid]) == [daemon.pid]


def test_the_keeper_ends_a_pool_process_that_the_system_does_not_end(
    scene: Scene, full_worker: Callable[..., ProcessWorker]
) -> None:
    worker = full_worker("prefork", "outlive")
    scene.wait_until(lambda: KEYS[0] in scene.keys("start"))
    pool, started = pool_of(worker.pid), scene.keys("start")
    os.kill(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    scene.wait_until(lambda: living(pool) == [])
    assert_back_soon(scene, killed_at, KEYS)
    assert_received_once_more(scene, started)


def assert_back_soon(scene: Scene, killed_at: float, keys: list[str]) -> None:
    scene.wait_until(lambda: scene.counts()[0] == len(keys))
    releases = [
        (entry["ReceiptHandle"], call.answered_at or 0.0)
        for call in release_calls(scene)
        for entry in call.entries
        if entry["VisibilityTimeout"] == 0
    ]
    assert len(releases) == len(dict(releases)) == len(keys)
    last = max(at for _, at in releases)
    stalls = [*scene.stalls, *server_stalls(scene.calls())]
    assert last - killed_at < SOON + stood_still(stalls, killed_at, last)


def assert_received_once_more(scene: Scene, started: list[str]) -> None:
    scene.wait_until(lambda: keepers_on(scene) == [])
    for key in KEYS:
        scene.let_end(key)
    scene.worker("-c", "4", "-P", "threads", conf={"imports": [MODULE]})
    scene.wait_until_empty()
    assert scene.keys("start") == sorted([*started, *KEYS])
    assert scene.keys("end") == KEYS
    assert set(Counter(receives(scene)).values()) == {2}

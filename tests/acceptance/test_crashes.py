"""Workers that are killed: their keeper, a separate process, releases their messages.

The queues hide a message for half a minute. A message that is visible sooner was released.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.acceptance.lateness import server_stalls
from tests.acceptance.processes import keepers_on, living, pool_of
from tests.acceptance.record import receives, release_calls, wait_for_extensions
from tests.acceptance.scene import Scene
from tests.support.stalls import stood_still

NewScene = Callable[..., Scene]
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

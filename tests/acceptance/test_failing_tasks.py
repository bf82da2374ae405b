"""The message of a task that fails, and that must stay in the queue, is released.

The queues hide a message for ten minutes. A message that is visible sooner was released.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from kombu import VERSION

from tests.acceptance.orders import MODULE, wait_for_no_lease
from tests.acceptance.record import (
    asked_of_releases,
    assert_released_for,
    handles,
    make_visible,
    polls_in_vain,
    timeouts_asked,
)
from tests.acceptance.scene import LONG, Scene

#: kombu 5.5 polls SQS with a blocking client on the worker's event loop. The loop learns of the
#: end of a prefork task, and starts the next, only between two polls
#: (github.com/celery/kombu/issues/2258).
POLLS_BLOCK = VERSION[:2] < (5, 6)
#: A message that is rejected without requeue is deleted if its queue has no dead-letter queue.
#: Before, it stayed in flight until its visibility timeout ended (kombu 5.7, docs of the SQS
#: transport).
REJECT_DELETES = VERSION[:2] >= (5, 7)
NewScene = Callable[..., Scene]


def test_an_immediate_release_is_received_again_within_a_second(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=4, attributes=LONG)
    scene.worker("-c", "2", conf={"sqs_heartbeat_release_delay": "immediate"})
    for key in ("a", "b"):
        scene.send("fail", key)
    scene.send("work", "good")
    wait_for_dead_letters(scene, 2)
    scene.wait_until_empty()
    assert scene.keys("start") == [*"aaaa", *"bbbb", "good"]
    # A poll lasts a second. A busy machine may delay any of them, but hardly all.
    fewest = min(polls_in_vain(scene))
    assert fewest <= (2 if POLLS_BLOCK else 0)
    # The call of a release may also extend other leases.
    assert set(timeouts_asked(scene)) - {int(LONG["VisibilityTimeout"])} == {0}


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_a_short_outage_of_what_tasks_depend_on_makes_no_dead_letters(
    new_scene: NewScene, is_fifo: bool
) -> None:
    scene = new_scene(max_receive_count=5, attributes=LONG, is_fifo=is_fifo)
    group = {"MessageGroupId": "g"} if is_fifo else {}
    keys = [f"{number:02}" for number in range(20)]
    for key in keys:
        scene.send("depend", key, **group)
    scene.worker("-c", "2")
    # On the FIFO queue, the others wait behind the first.
    failures = 2 * (1 if is_fifo else len(keys))

    def has_been_down_for_a_while() -> bool:
        # Released at once, the messages would fill every poll until all are dead letters.
        starts = scene.notes("start")
        return len(starts) >= failures and any(
            call.answered_at is not None
            and call.started_at > starts[failures - 1].at
            and not (call.answer or {}).get("Messages")
            for call in scene.calls("ReceiveMessage")
        )

    scene.wait_until(has_been_down_for_a_while)
    scene.let_end("dependency")
    dead = functools.partial(scene.counts, scene.dead_letters)
    scene.wait_until(lambda: len(scene.notes("end")) + sum(dead()) >= len(keys))
    assert scene.keys("end") == keys
    asked = asked_of_releases(scene)
    assert set(asked[1]) == {0}
    # A busy machine may make a release late, which then hides for the rest of the delay.
    assert max(asked[2]) <= 2
    assert min(gap for key in keys for gap in gaps(scene, key)[1:2]) >= 2
    if is_fifo:
        assert [note.key for note in scene.notes("end")] == keys


@pytest.mark.fresh
@pytest.mark.parametrize("tool", ["Sentry", "OpenTelemetry"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_in_an_instrumented_worker_messages_end_as_usual_and_each_error_is_reported(
    new_scene: NewScene, tmp_path: Path, pool: str, tool: str
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    errors = tmp_path / "errors"
    env = {"PROJ_INSTRUMENT": tool, "PROJ_ERRORS": str(errors)}
    scene.worker("-c", "2", "-P", pool, env=env)
    scene.send("work", "good")
    scene.send("fail", "bad")
    wait_for_dead_letters(scene, 1)
    scene.wait_until_empty()
    assert scene.keys("start") == ["bad", "bad", "good"]
    assert scene.keys("end") == ["good"]
    scene.wait_until(lambda: errors.exists() and errors.read_text().count("Error") == 2)
    lines = [line.split() for line in errors.read_text().splitlines() if "Error" in line]
    assert [(line[0].rpartition("/")[2], line[-1]) for line in lines] == [
        ("tests.acceptance.proj.fail", "ValueError")
    ] * 2


def test_without_a_dead_letter_queue_a_poison_message_is_released_with_ever_longer_delays(
    new_scene: NewScene,
) -> None:
    scene = new_scene(attributes=LONG)
    worker = scene.worker("-c", "1", "-P", "threads")
    scene.send("fail", "a")
    scene.wait_for_notes("start", 3)
    assert_released_for(scene, 0, 2)
    assert worker.logs().count("has no dead-letter queue") == 1


@pytest.mark.oldest
def test_any_end_that_leaves_its_message_in_the_queue_releases_it_at_once(
    new_scene: NewScene,
) -> None:
    scene = new_scene(max_receive_count=2, attributes=LONG)
    # More processes than tasks: Celery is slow to notice a lost one and to replace it.
    scene.worker("-c", "4")
    scene.send("die", "its process is lost")
    scene.send("overrun", "hard time limit")
    scene.send("reject", "requeued", True)
    scene.wait_for_notes("end", 1)
    wait_for_dead_letters(scene, 2)
    scene.wait_until_empty()
    keys = ["hard time limit", "its process is lost", "requeued"]
    assert scene.keys("start") == sorted(2 * keys)
    assert scene.keys("end") == ["its process is lost"]
    # The call of a release may also extend other leases.
    assert set(timeouts_asked(scene)) - {int(LONG["VisibilityTimeout"])} == {0}


@pytest.mark.oldest
def test_an_explicit_reject_is_left_to_kombu(new_scene: NewScene) -> None:
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", conf={"imports": [MODULE]})
    scene.send("reject", "a", False)
    scene.wait_for_notes("start", 1)
    if REJECT_DELETES:
        scene.proxy.wait_for("DeleteMessageBatch")
        scene.wait_until_empty()
        assert scene.keys("start") == ["a"]
    else:
        # It stays hidden until its visibility timeout ends.
        wait_for_no_lease(scene)
        assert scene.counts() == (0, 1)
        make_visible(scene, handles(scene)[0])
        scene.wait_for_notes("start", 2)
        assert scene.proxy.calls("DeleteMessageBatch") == []
    assert timeouts_asked(scene) == []


def wait_for_dead_letters(scene: Scene, count: int) -> None:
    """Return once so many messages are in the dead-letter queue."""
    scene.wait_until(lambda: sum(scene.counts(scene.dead_letters)) == count)


def test_kombus_backoff_policy_wins_where_it_applies(new_scene: NewScene) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    worker = scene.worker(
        "-c",
        "1",
        "-P",
        "threads",
        conf={
            "broker_transport_options": {
                "region": "us-east-1",
                "is_secure": False,
                "wait_time_seconds": 1,
                "predefined_queues": {
                    scene.name: {
                        "url": scene.url,
                        # The last receive is released at once, which lets SQS move the message.
                        "backoff_policy": {"1": 2, "2": 0, "3": 600},
                        "backoff_tasks": [
                            "tests.acceptance.proj.reject",
                            "tests.acceptance.proj.fail",
                        ],
                    }
                },
            }
        },
    )
    failing = [("reject", "a", True), ("fail", "b"), ("reject", "c", False)]
    for number, (task, key, *more) in enumerate(failing, 1):
        scene.send(task, key, *more)
        scene.wait_for_notes("start", 3 * number)
        assert_released_for(scene, 2, 0, skip=3 * (number - 1))
        assert gaps(scene, key)[0] >= 2
        wait_for_dead_letters(scene, number)
    scene.send("work", "still alive")
    scene.wait_until(lambda: "still alive" in scene.keys("end"))
    assert "KeyError" not in worker.logs()


def test_a_release_delay_can_be_set_by_receive_count(new_scene: NewScene) -> None:
    scene = new_scene(max_receive_count=3, attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", conf={"sqs_heartbeat_release_delay": [0, 2]})
    scene.send("fail", "a")
    scene.wait_for_notes("start", 3)
    assert_released_for(scene, 0, 2)
    assert gaps(scene, "a")[1] >= 2


def test_another_worker_receives_a_message_that_fails_while_this_one_shuts_down(
    new_scene: NewScene,
) -> None:
    # The first worker's last long poll is still pending at SQS, and no one will read its
    # answer. A message that is released meanwhile would be hidden by this dead receive.
    scene = new_scene(max_receive_count=3, attributes=LONG)
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 5}
    scene.send("hold", "a", True)
    first = scene.worker("-c", "1", "-l", "DEBUG", conf={"broker_transport_options": options})
    scene.wait_for_notes("start", 1)
    polls = functools.partial(scene.calls, "ReceiveMessage")
    scene.wait_until(lambda: any(poll.answered_at is None for poll in polls()))
    first.kill(signal.SIGTERM)
    first.wait_for_log("Canceling task consumer")
    scene.let_end("a")
    scene.worker("-c", "1")
    scene.wait_for_notes("start", 2)


def gaps(scene: Scene, key: str) -> list[float]:
    """Return the seconds from each start of a task to its next."""
    starts = [note.at for note in scene.notes("start") if note.key == key]
    return [later - sooner for sooner, later in pairwise(starts)]


def test_a_stock_worker_deletes_what_fails_if_the_queue_has_no_redrive_policy(
    new_scene: NewScene,
) -> None:
    # docs/motivation.md and docs/howto/stock-worker.md warn of it.
    scene = new_scene(attributes=LONG)
    scene.worker("-c", "1", "-P", "threads", flag=False)
    scene.send("fail", "a")
    scene.wait_for_notes("start", 1)
    if REJECT_DELETES:
        scene.wait_until_empty()
    else:
        scene.send("work", "after it")
        scene.wait_for_notes("end", 1)
        assert scene.counts() == (0, 1)
    assert scene.keys("start")[0] == "a"
    assert scene.keys("start").count("a") == 1

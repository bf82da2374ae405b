"""Message groups of a FIFO queue, on real workers that run several tasks at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from celery import chord

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.foreign import envelope
from tests.acceptance.scene import LONG, Scene
from tests.support.markdown import commands

GROUPS = ("a", "b", "c", "d", "e")
EACH = 8
WORKER = "celery -A proj worker "
#: What the log of a group shows of a task that is retried before the next: "1 start", ...
RETRIED = {
    "retried": ["1 start"],
    "asked": ["1 start", "1 end"],
    "caught": ["1 start", "1 end"],
    "caught-then-failed": ["1 start"],
}


@pytest.fixture(scope="module")
def sqs_server() -> Iterator[SimulatedServer]:
    """The only server that orders the messages of groups as AWS does."""
    with SimulatedServer() as server:
        yield server


@pytest.fixture
def scene(new_scene: Callable[..., Scene]) -> Scene:
    return new_scene(attributes=LONG, is_fifo=True)


def send(scene: Scene, group: str, numbers: Sequence[int], task: str = "step", *args: Any) -> None:
    for number in numbers:
        scene.send(task, f"{group} {number}", *args, MessageGroupId=group)


def seen(scene: Scene, group: str) -> list[str]:
    """Return what the tasks of a group wrote down: "0 start", "0 end", ..."""
    notes = [note for note in scene.notes() if note.key.startswith(f"{group} ")]
    return [f"{note.key.rpartition(' ')[2]} {note.what}" for note in notes]


def once(*numbers: int) -> list[str]:
    return [f"{number} {what}" for number in numbers for what in ("start", "end")]


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent", "eventlet"])
def test_workers_keep_the_order_of_each_group_whatever_fails(scene: Scene, pool: str) -> None:
    (line,) = commands("docs/howto/fifo.md")
    for number in range(EACH):
        for group in GROUPS:
            fails = ["fail"] if number in (0, 3) else []
            send(scene, group, [number], "step", *fails)
    # A message that fails is released with those that wait behind it.
    conf = {"sqs_heartbeat_fifo_batch": 10, "sqs_heartbeat_release_delay": "immediate"}
    for _ in range(2):
        scene.worker("-P", pool, *line.removeprefix(WORKER).split(), flag=False, conf=conf)
    scene.wait_for_notes("end", EACH * len(GROUPS))
    scene.wait_until_empty()
    failing = ["0 start", *once(0, 1, 2), "3 start", *once(*range(3, EACH))]
    assert {group: seen(scene, group) for group in GROUPS} == dict.fromkeys(GROUPS, failing)


def test_in_parallel_messages_of_a_group_run_side_by_side(scene: Scene) -> None:
    send(scene, "a", range(4), "hold")
    scene.worker("-c", "4", conf={"sqs_heartbeat_fifo": "parallel"})
    scene.wait_for_notes("start", 4)
    for number in range(4):
        scene.let_end(f"a {number}")
    scene.wait_until_empty()


def test_a_retry_comes_before_the_rest_of_its_group_unless_it_is_another_message(
    scene: Scene,
) -> None:
    for group in (*RETRIED, "changed"):
        send(scene, group, [0])
        send(scene, group, [1], "step", group)
        send(scene, group, [2])
    worker = scene.worker("-c", "4")
    scene.wait_until_empty()
    for group, first in RETRIED.items():
        assert seen(scene, group) == [*once(0), *first, *once(1, 2)]
    assert seen(scene, "changed") == [*once(0), "1 start", *once(2, 1)]
    warning = "is sent as a new message, which goes to the end of its message group"
    assert worker.logs().count(warning) == 1


@pytest.mark.versions
def test_a_chord_waits_behind_its_header_in_their_group(scene: Scene, tmp_path: Path) -> None:
    results, app = f"file://{tmp_path}", scene.app
    app.conf.update(result_backend=results, task_default_queue=scene.name)
    proj = "tests.acceptance.proj"
    header = [app.signature(f"{proj}.part", (number,)) for number in (1, 2, 3)]
    chord(header, app=app)(app.signature(f"{proj}.total"))
    worker = scene.worker("-c", "2", conf={"result_backend": results})
    scene.wait_for_notes("total", 1)
    scene.wait_until_empty()
    notes = [(note.what, note.key) for note in scene.notes() if note.what in ("part", "total")]
    assert notes == [("part", "1"), ("part", "2"), ("part", "3"), ("total", "6")]
    assert "is sent as a new message" not in worker.logs()


def test_a_group_continues_when_a_message_that_can_not_be_decoded_is_a_dead_letter(
    new_scene: Callable[..., Scene],
) -> None:
    scene = new_scene(attributes=LONG, is_fifo=True, max_receive_count=1)
    send(scene, "a", [0, 1])
    scene.client.send_message(
        QueueUrl=scene.url,
        MessageBody=json.dumps(envelope(body="!!!a")),
        MessageGroupId="a",
        MessageDeduplicationId="bad",
    )
    send(scene, "a", [2, 3])
    send(scene, "b", [0])
    worker = scene.worker("-c", "4")
    scene.wait_until_empty()
    assert (seen(scene, "a"), seen(scene, "b")) == (once(0, 1, 2, 3), once(0))
    assert sum(scene.counts(scene.dead_letters)) == 1
    assert worker.process.exit_code is None

"""No lease outlives its task: a message that nothing settles any more is given up, and no other."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from celery_sqs_heartbeat.transport.binding import OrphanedMessages
from tests.unit.scene import Scene

NewNet = Callable[..., tuple[Scene, OrphanedMessages, list[Any]]]
RELEASED = "released 7 failed"


@pytest.fixture
def new_net(new_scene: Callable[..., Scene]) -> NewNet:
    """A worker, its net, and the requests that Celery was to forget."""

    def make(*, may_run_on: bool = False) -> tuple[Scene, OrphanedMessages, list[Any]]:
        scene, forgotten = new_scene(release_delay=7), list[Any]()
        scene.heartbeat.orphaned.attach(forget=forgotten.append, may_run_on=may_run_on)
        return scene, scene.heartbeat.orphaned, forgotten

    return make


@pytest.mark.parametrize("may_run_on", [False, True])
def test_a_request_that_is_gone_has_its_message_given_up(
    new_net: NewNet, caplog: pytest.LogCaptureFixture, *, may_run_on: bool
) -> None:
    # A pool's process may still run its task: then the message is left to its visibility timeout.
    scene, net, _ = new_net(may_run_on=may_run_on)
    scene.deliver("a")
    net.look()
    assert scene.fate("a") == "held"
    scene.got.clear()
    net.look()
    assert scene.fate("a") == ("let expire" if may_run_on else RELEASED)
    assert scene.slots == set()
    assert "message a of https://sqs." in caplog.text
    assert "task work[a], was not settled" in caplog.text


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_job_that_is_gone_or_has_ended_has_its_message_given_up(
    new_net: NewNet, *, has_ended: bool
) -> None:
    # Celery itself keeps the request of a task that it believes to be running. And a stored error
    # keeps its frames, and the frames keep the job.
    scene, net, forgotten = new_net()
    request = scene.start("a")
    net.look()
    assert scene.fate("a") == "held"
    if has_ended:
        request.end()
    else:
        scene.pool.jobs.clear()
        gc.collect()
    net.look()
    assert (scene.fate("a"), forgotten) == (RELEASED, [request])


@pytest.mark.parametrize("settle", ["done", "release", "disown"])
def test_settled_messages_are_left_alone(new_net: NewNet, settle: str) -> None:
    scene, net, forgotten = new_net()
    scene.start("a")
    getattr(scene.keeper, settle)("a")
    scene.channel.qos.ack("a")
    before = scene.fate("a")
    scene.pool.jobs.clear()
    net.look()
    assert (scene.fate("a"), forgotten) == (before, [])


def test_the_slot_of_a_lost_message_is_free_when_the_last_of_its_requests_is_gone(
    new_net: NewNet,
) -> None:
    scene, net, forgotten = new_net()
    first = scene.deliver("a")
    scene.take(first.message)
    scene.keeper.let_expire("a")
    second = scene.got["a"]
    first.end()
    net.look()
    assert (scene.slots, forgotten) == ({"a"}, [])
    second.end()
    net.look()
    assert (scene.slots, forgotten) == (set(), [second])


def test_a_replaced_request_leaves_the_message_to_its_successor(new_net: NewNet) -> None:
    scene, net, _ = new_net()
    first = scene.deliver("a")
    scene.take(first.message)
    assert scene.got["a"] is not first
    del first
    net.look()
    assert scene.fate("a") == "held"
    scene.got.clear()
    net.look()
    assert scene.fate("a") == RELEASED


def test_an_ack_on_its_way_to_kombu_is_left_alone(new_net: NewNet) -> None:
    # The keeper never had a lease on it: kombu itself deletes it.
    scene, net, forgotten = new_net()
    request = scene.start("a")
    request._watch.is_settling = True
    request.end()
    net.look()
    assert (scene.fate("a"), forgotten) == ("held", [])


def test_the_request_of_an_ended_lease_says_nothing_of_a_later_lease_on_its_message(
    new_net: NewNet,
) -> None:
    scene, net, _ = new_net()
    old = scene.deliver("a")
    scene.keeper.let_expire("a")
    scene.arrive("a", handle="a later receive")
    old.end()
    net.look()
    assert scene.fate("a later receive") == "held"


def test_remaining_messages_are_released_at_the_end_with_any_pool(new_net: NewNet) -> None:
    scene, net, _ = new_net(may_run_on=True)
    scene.deliver("a")
    scene.got.clear()
    net.close()
    assert scene.fate("a") == RELEASED


def test_it_looks_on_the_event_loop_and_asks_again_when_a_call_was_lost(new_net: NewNet) -> None:
    scene, net, _ = new_net()
    calls: list[Any] = []
    scene.deliver("a")
    net.look_on(calls.append)
    assert calls == []
    scene.got.clear()
    for _ in range(2):
        net.look_on(calls.append)
    calls[1]()
    net.look_on(calls.append)
    assert (len(calls), scene.fate("a")) == (2, RELEASED)

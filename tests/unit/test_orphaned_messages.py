"""The net gives up each message whose request or job has gone without settling it, and no other."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseTerms
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.orphaned_messages import OrphanedMessages, Watch
from tests.support.linked import Linked, message_of

URL = "https://sqs/1/q"
RELEASED, DROPPED = "rejected", "freed"


class Request:
    """Stands for a Celery request."""


class Job:
    """Stands for a pool's job."""


class Channel:
    """A channel that releases what is rejected, as ours does."""

    def __init__(self, keeper: LinkedKeeper) -> None:
        self.done: list[tuple[str, str]] = []
        self.slots: set[str] = set()
        self.qos = SimpleNamespace(ack=self._free)
        self._keeper = keeper

    def takes_slot(self, tag: str) -> bool:
        return tag in self.slots

    def _free(self, tag: str) -> None:
        self.slots.discard(tag)
        self.done.append((DROPPED, tag))

    def basic_reject(self, tag: str, requeue: bool) -> None:
        assert requeue
        self._keeper.release(tag, cause="failed")
        self.done.append((RELEASED, tag))


class Scene:
    def __init__(self, *, may_run_on: bool = False) -> None:
        self._linked = Linked(0.0)
        self.keeper = self._linked.worker
        self.channel = Channel(self.keeper)
        self.net = OrphanedMessages(self.keeper)
        self.forgotten: list[object] = []
        self.net.attach(forget=self.forgotten.append, may_run_on=may_run_on)

    def receive(self, handle: str = "a") -> Lease:
        self._linked.deliver()
        self._linked.receive(URL, message_of("a", handle, 1), LeaseTerms.of(30), 30, 0.0)
        lease = self.keeper.find(handle)
        assert lease is not None
        return lease

    def watch(self, request: object, lease: Lease, tag: str = "a") -> Watch:
        message = SimpleNamespace(delivery_tag=tag, channel=self.channel)
        return self.net.watch(request, lease, message)

    def look(self) -> list[tuple[str, str]]:
        self.net.look()
        return self.channel.done


@pytest.mark.parametrize("may_run_on", [False, True])
def test_a_request_that_is_gone_has_its_message_given_up(
    may_run_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(may_run_on=may_run_on)
    lease = scene.receive()
    request = Request()
    scene.watch(request, lease)
    assert scene.look() == []
    del request
    assert scene.look() == [(DROPPED if may_run_on else RELEASED, "a")]
    assert lease.goal is (Goal.HOLD if may_run_on else Goal.RELEASE)
    assert (scene.keeper.find("a") is None) == may_run_on
    assert scene.look() == scene.channel.done[:1]
    assert f"sqs-heartbeat: message a of {URL}, task None[None], was not settled" in caplog.text


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_job_that_is_gone_or_has_ended_has_its_message_given_up(has_ended: bool) -> None:
    # Celery itself keeps the request of a task that it believes to be running. And a stored error
    # keeps its frames, and the frames keep the job.
    scene, request, job = Scene(), Request(), Job()
    watch = scene.watch(request, scene.receive())
    watch.follow(job)
    assert scene.look() == []
    if has_ended:
        watch.end()
    else:
        del job
    assert scene.look() == [(RELEASED, "a")]
    assert scene.forgotten == [request]


@pytest.mark.parametrize("settle", ["done", "release", "let_expire", "disown"])
def test_settled_messages_are_left_alone(settle: str) -> None:
    scene, request = Scene(), Request()
    watch = weakref.ref(scene.watch(request, scene.receive()))
    getattr(scene.keeper, settle)("a")
    del request
    assert scene.look() == []
    assert watch() is None


def test_a_lost_message_whose_task_ended_unnoticed_leaves_its_slot() -> None:
    scene, request, job = Scene(), Request(), Job()
    scene.watch(request, scene.receive()).follow(job)
    scene.channel.slots.add("a")
    scene.keeper.let_expire("a")
    del job
    assert scene.look() == [(DROPPED, "a")]
    assert scene.forgotten == [request]
    assert scene.look() == [(DROPPED, "a")]


def test_a_lost_message_keeps_its_slot_while_another_of_its_requests_runs() -> None:
    scene, first, second = Scene(), Request(), Request()
    lease = scene.receive()
    scene.watch(first, lease)
    scene.watch(second, lease)
    scene.channel.slots.add("a")
    scene.keeper.let_expire("a")
    del first
    assert scene.look() == []
    del second
    assert scene.look() == [(DROPPED, "a")]


def test_an_ack_on_its_way_to_kombu_is_left_alone() -> None:
    scene, request = Scene(), Request()
    scene.watch(request, scene.receive()).is_settling = True
    del request
    assert scene.look() == []


def test_a_message_without_a_request_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    lease = scene.receive()
    assert scene.look() == []
    assert lease.goal is Goal.HOLD


def test_a_replaced_request_leaves_the_message_to_its_successor() -> None:
    scene, first, second = Scene(), Request(), Request()
    lease = scene.receive()
    scene.watch(first, lease)
    scene.watch(second, lease)
    del first
    assert scene.look() == []
    del second
    assert scene.look() == [(RELEASED, "a")]


def test_the_request_of_an_ended_lease_says_nothing_of_a_later_lease_on_its_message() -> None:
    scene, old = Scene(), Request()
    scene.watch(old, scene.receive())
    scene.keeper.let_expire("a")
    later = scene.receive("handle 2")
    del old
    assert scene.look() == []
    assert later.goal is Goal.HOLD


def test_remaining_messages_are_released_at_the_end_with_any_pool() -> None:
    scene, request = Scene(may_run_on=True), Request()
    scene.watch(request, scene.receive())
    del request
    scene.net.close()
    assert scene.channel.done == [(RELEASED, "a")]


def test_a_watch_is_freed_without_the_garbage_collector() -> None:
    scene, request, job = Scene(), Request(), Job()
    gc.collect()
    gc.disable()
    try:
        watch = scene.watch(request, scene.receive())
        watch.follow(job)
        freed = weakref.ref(watch)
        scene.keeper.done("a")
        del watch, request, job
        scene.look()
        assert freed() is None
    finally:
        gc.enable()


def test_it_looks_on_the_event_loop_and_asks_again_when_a_call_was_lost() -> None:
    scene, request = Scene(), Request()
    calls: list[Any] = []
    scene.watch(request, scene.receive())
    scene.net.look_on(calls.append)
    assert calls == []
    del request
    for _ in range(2):
        scene.net.look_on(calls.append)
    calls[1]()
    scene.net.look_on(calls.append)
    assert len(calls) == 2
    assert scene.channel.done == [(RELEASED, "a")]

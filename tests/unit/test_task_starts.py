"""A task starts only while its message is ours, and one that can't start keeps no lease or slot.

What fails to start ends the worker only if its pool is broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import InvalidTaskError

from celery_sqs_heartbeat.leases.lease import LeaseStatus
from celery_sqs_heartbeat.worker.starts import will_run
from tests.support.insides import give_to_pool
from tests.unit.scene import Scene, url_of

New = Callable[..., Scene]
EVER, NEVER = ("warn", "revoke", "terminate"), ()
#: With which settings a task starts, by what has become of its lease.
STARTS = {
    LeaseStatus.OWNED: EVER,
    LeaseStatus.REFUSED: EVER,
    LeaseStatus.EXPIRED: ("warn",),
    LeaseStatus.CAPPED: ("warn",),
    LeaseStatus.LOST: NEVER,
}


@pytest.mark.parametrize(("status", "starting"), STARTS.items())
@pytest.mark.parametrize("on_lost", EVER)
@pytest.mark.parametrize("group", [None, "g"])
def test_a_task_starts_only_if_its_message_may_still_be_ours(
    new_scene: New,
    status: LeaseStatus,
    starting: tuple[str, ...],
    on_lost: str,
    group: str | None,
) -> None:
    scene = new_scene(queue="q.fifo" if group else "q", on_lost=on_lost)
    request = scene.deliver("a", group=group)
    scene.set_status("a", status)
    # In order, other messages of its group may run before it by now.
    may_start = ("revoke" if group else on_lost) in starting
    assert give_to_pool(request, scene.pool) is not may_start
    assert bool(scene.pool.jobs) is may_start
    # A late ack deletes nothing, and there is room for another message.
    assert scene.fate("a") == ("held" if may_start else "disowned")
    assert scene.slots == ({"a"} if may_start else set())


def test_a_message_that_was_released_does_not_start(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    request = scene.deliver("a")
    scene.keeper.release("a")
    assert give_to_pool(request, scene.pool)
    assert "task work[a] is not started: its message was released" in caplog.text


@pytest.mark.parametrize("withdraws", [True, False])
def test_either_a_start_or_a_withdrawal_succeeds(scene: Scene, *, withdraws: bool) -> None:
    request = scene.deliver("a")
    first, second = (
        (request.withdraw, request.claim_start)
        if withdraws
        else (request.claim_start, request.withdraw)
    )
    assert [first(), second(), first()] == [True, False, True]


@pytest.mark.parametrize(
    ("has_processes", "process"),
    [(True, 4711), pytest.param(False, None, id="threads, or the number of a greenlet")],
)
def test_only_a_pool_of_processes_reports_the_process_of_a_task(
    new_scene: New, process: int | None, *, has_processes: bool
) -> None:
    scene = new_scene(has_processes=has_processes)
    noted: list[tuple[str, int | None]] = []
    scene.keeper.note_start = lambda *started: noted.append(started)
    scene.run("a")
    assert noted == [("a", process)]


def test_a_task_that_the_pool_does_not_take_is_released_and_ends_a_broken_worker(
    new_scene: New, caplog: pytest.LogCaptureFixture
) -> None:
    scene = new_scene(release_delay=7, has_processes=False, is_green=True)
    checked: list[Exception] = []
    scene.heartbeat.check_pool = checked.append
    request = scene.deliver("a")
    scene.heartbeat.in_pool["a"] = request
    scene.pool.error = RuntimeError("no more room")
    assert give_to_pool(request, scene.pool)
    assert scene.fate("a") == "released 7 undeliverable"
    # Otherwise it would count as one that the pool has to run, and leave no room.
    assert (scene.slots, list(scene.heartbeat.in_pool)) == (set(), [])
    assert checked == [scene.pool.error]
    assert "task work[a] can't be run: its message is released like that" in caplog.text


def test_a_refused_task_that_has_begun_is_left_to_its_visibility_timeout(scene: Scene) -> None:
    scene.run("a")
    scene.pool.error = RuntimeError("its own strategy gives it twice")
    give_to_pool(scene.got["a"], scene.pool)
    assert (scene.fate("a"), scene.slots) == ("let expire", set())


@pytest.mark.parametrize("begins", [True, False])
def test_a_delivery_that_fails_releases_only_a_message_whose_task_has_not_begun(
    new_scene: New, *, begins: bool
) -> None:
    scene = new_scene(release_delay=7)

    def begin_and_fail(message: Any) -> None:
        scene.take(message)
        if begins:
            scene.got["a"].begin()
        raise LookupError

    scene.consume(begin_and_fail)
    scene.deliver("a")
    assert scene.fate("a") == ("let expire" if begins else "released 7 undeliverable")
    assert scene.slots == set()


@pytest.mark.parametrize("limits", [[5], ["5", None], [-1, None]])
def test_a_message_with_time_limits_that_no_pool_can_use_is_no_task(
    scene: Scene, limits: list[Any]
) -> None:
    def refuse(message: Any) -> None:
        with pytest.raises(InvalidTaskError):
            scene.take(message)
        message.reject()

    scene.consume(refuse)
    scene.deliver("a", timelimit=limits)
    assert (scene.fate("a"), scene.slots) == ("deleted", set())


@pytest.mark.parametrize("write_to", [None, "a process"])
def test_a_request_outlives_its_consumer_once_a_process_has_its_job(
    scene: Scene, write_to: object
) -> None:
    request = scene.deliver("a")
    assert not request.outlives_consumer()
    give_to_pool(request, scene.pool)
    scene.pool.jobs[0].job._write_to = write_to
    assert request.outlives_consumer() is (write_to is not None)
    scene.pool.jobs[0].accept_callback(4711, 0.0)
    assert request.outlives_consumer()


@pytest.mark.parametrize("job", [None, Future()])
def test_a_thread_or_a_greenlet_runs_every_job(job: Any) -> None:
    assert will_run(job)


@pytest.mark.parametrize(
    ("strategy", "runs"),
    [("celery.worker.strategy:default", False), (lambda task, app, consumer: None, True)],
)
def test_a_request_in_a_tasks_own_strategy_counts_as_running(
    new_scene: New, strategy: Any, *, runs: bool
) -> None:
    request = new_scene(task={"Strategy": strategy}).deliver("a")
    assert (request.outlives_consumer(), request.has_started()) == (runs, runs)


def test_a_message_that_celery_got_past_the_keeper_is_logged_once_per_queue(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def take(tag: str, queue: str) -> None:
        info = {"sqs_queue": url_of(queue), "sqs_message": {"MessageId": f"m-{tag}"}}
        headers = {"task": "work", "id": tag}
        message = SimpleNamespace(delivery_tag=tag, delivery_info=info, headers=headers)
        message.body, message.payload = [[], {}, {}], [[], {}, {}]
        message.content_type = message.content_encoding = None
        message.channel, message.properties = scene.channel, {}
        scene.task.Request(message, app=scene.app, task=scene.task)

    scene.heartbeat.arriving.add("its lease has ended")
    for queue, tag in (("no-ack", "a"), ("q", "its lease has ended"), ("q", "b"), ("q", "c")):
        take(tag, queue)
    (line,) = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert line.startswith("sqs-heartbeat: message m-b of queue q, task work[b], has no lease")

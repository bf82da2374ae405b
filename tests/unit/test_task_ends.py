"""However a task ends, its message is deleted or released at once, and its prefetch slot is free.

Only a task that succeeded, or that Celery acks, loses its message. No ack or reject is lost with a
channel, and none touches a message that is no longer ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import Terminated, WorkerLostError
from celery.exceptions import Ignore, Reject, TimeLimitExceeded
from celery.utils.serialization import UnpickleableExceptionWrapper

from celery_sqs_heartbeat import ReleaseMessage
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from tests.unit.scene import ATTRIBUTES, Scene

New = Callable[..., Scene]
#: The message of a failed task stays in the queue, as it does in the README's project.
STAYS: dict[str, Any] = {"acks_on_failure_or_timeout": False}
LETTERS = replace(ATTRIBUTES, max_receive_count=5)


def info_of(error: BaseException) -> ExceptionInfo:
    try:
        raise error
    except BaseException:
        return ExceptionInfo()


@pytest.mark.parametrize(
    ("task", "error", "fate"),
    [
        ({}, None, "deleted"),
        (STAYS, None, "deleted"),
        pytest.param({}, KeyError("k"), "deleted", id="Celery acks a failed task"),
        (STAYS, KeyError("k"), "released 7 failed"),
        (STAYS, WorkerLostError("killed"), "released 7 failed"),
        ({"reject_on_worker_lost": True}, WorkerLostError("killed"), "released 7 failed"),
        ({}, SystemExit(1), "deleted"),
        (STAYS, SystemExit(1), "released 7 failed"),
        pytest.param({}, MemoryError("full"), "released 7 failed", id="the worker continues"),
        ({}, Ignore(), "deleted"),
        ({}, Reject(requeue=True), "released 7 failed"),
        pytest.param({}, Reject(), "let expire", id="it may have become a dead letter"),
        ({}, ReleaseMessage(90), "released 90 asked by task"),
        ({}, ReleaseMessage(), "released 7 asked by task"),
    ],
)
def test_every_end_in_a_process_settles_the_message(
    new_scene: New, task: dict[str, Any], error: BaseException | None, fate: str
) -> None:
    scene = new_scene(task=task, attributes=LETTERS, release_delay=7)
    job = scene.run("a")
    if error is None:
        job.callback((0, None, 0.1))
    else:
        job.error_callback(info_of(error))
    assert scene.fate("a") == fate
    assert scene.slots == set()
    assert scene.sqs.mock_calls == []


@pytest.mark.parametrize(
    ("attributes", "fate"),
    [
        (ATTRIBUTES, "deleted"),
        pytest.param(LETTERS, "let expire", id="SQS makes it a dead letter in the end"),
        pytest.param(replace(ATTRIBUTES, is_known=False), "let expire", id="not known"),
    ],
)
def test_a_message_that_is_rejected_on_purpose_is_deleted_only_without_a_dead_letter_queue(
    new_scene: New, attributes: Any, fate: str
) -> None:
    scene = new_scene(attributes=attributes)
    scene.run("a").error_callback(info_of(Reject()))
    assert scene.fate("a") == fate


@pytest.mark.parametrize("status", ["let_expire", "disown", "release"])
def test_a_task_that_fails_touches_no_message_whose_lease_has_ended(
    new_scene: New, status: str
) -> None:
    # Without a dead-letter queue, kombu itself would delete it.
    scene = new_scene(task=STAYS, release_delay=7)
    job = scene.run("a")
    getattr(scene.keeper, status)("a")
    before = scene.fate("a")
    job.error_callback(info_of(KeyError("k")))
    assert scene.fate("a") == before
    assert scene.slots == set()
    assert scene.sqs.mock_calls == []


def test_an_error_of_the_result_backend_keeps_no_message(
    new_scene: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = new_scene(release_delay=7)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("the backend is down")

    monkeypatch.setattr(scene.app.backend, "mark_as_failure", fail)
    # Celery asks the backend first, and then rejects.
    job = scene.run("a")
    with pytest.raises(ConnectionError):
        job.error_callback(info_of(Reject()))
    assert scene.fate("a") == "deleted"


@pytest.mark.parametrize("fails", [False, True])
def test_the_keeper_learns_of_an_end_at_once_even_if_the_channel_never_does(
    new_scene: New, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    scene = new_scene(task=STAYS, release_delay=7)
    job = scene.run("a")
    # The event loop is late, has ended, or was replaced along with the channel.
    for method in ("basic_ack", "basic_reject"):
        monkeypatch.setattr(scene.channel, method, lambda *args, **options: None)
    if fails:
        job.error_callback(info_of(KeyError("k")))
    else:
        job.callback((0, None, 0.1))
    assert scene.fate("a") == ("released 7 failed" if fails else "deleted")
    # The call arrives when the keeper is done with the message.
    monkeypatch.undo()
    scene.keeper.let_expire("a")
    if fails:
        scene.channel.basic_reject("a")
    else:
        scene.channel.basic_ack("a")
    assert scene.slots == set()
    assert scene.sqs.mock_calls == []


def test_what_a_settled_message_leaves_behind_is_forgotten_with_its_ack(new_scene: New) -> None:
    scene = new_scene(task=STAYS)
    scene.run("a").callback((0, None, 0.1))
    scene.run("b").error_callback(info_of(KeyError("k")))
    assert [each for each in "ab" if each in scene.heartbeat.settled] == []


def test_a_message_settled_before_its_reject_arrives_is_settled_once(new_scene: New) -> None:
    scene = new_scene(release_delay=7)
    scene.deliver("a")
    scene.channel.reject("a", requeue=True)
    scene.channel.reject("a", requeue=False)
    scene.channel.basic_reject("a", requeue=False)
    assert scene.fate("a") == "released 7 failed"
    assert scene.slots == set()


@pytest.mark.parametrize(
    ("count", "delay"),
    [(1, 11), pytest.param(5, 0, id="at its last receive, SQS makes it a dead letter")],
)
def test_kombus_backoff_policy_decides_about_a_message_that_is_rejected_on_purpose(
    new_scene: New, count: int, delay: int
) -> None:
    scene = new_scene(attributes=LETTERS)
    scene.channel.backoff_delay = lambda *args: 11
    scene.deliver("a", count=count)
    scene.channel.basic_reject("a", requeue=False)
    assert scene.fate("a") == f"released {delay} backoff policy"


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_end_of_a_cancelled_task_is_a_failure_only_if_celery_has_not_announced_it(
    new_scene: New, *, has_begun: bool
) -> None:
    scene = new_scene(release_delay=7, task=STAYS)
    scene.start("a")
    if has_begun:
        scene.pool.jobs[-1].accept_callback(4711, 0.0)
    scene.got["a"].cancel(scene.pool)
    assert (scene.pool.stopped, scene.fate("a")) == ([4711] * has_begun, "held")
    end = Terminated(15) if has_begun else LookupError()
    scene.pool.jobs[-1].error_callback(info_of(end))
    assert scene.fate("a") == ("released 0 cancelled" if has_begun else "released 7 failed")


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (KeyError("k"), KeyError),
        (Reject(requeue=True), Reject),
        (ReleaseMessage(reason="tenant is busy"), ReleaseMessage),
        pytest.param(None, LookupError, id="it could not be pickled"),
        pytest.param(TimeLimitExceeded(3), TimeLimitExceeded, id="it ran out of time"),
    ],
)
def test_a_release_delay_may_depend_on_the_error(
    new_scene: New, caplog: pytest.LogCaptureFixture, error: Any, known: type[Exception]
) -> None:
    caplog.set_level("INFO")
    errors: list[type[Exception] | None] = []

    def delay(*, exception: type[Exception] | None, **_: Any) -> float:
        errors.append(exception)
        return 11

    scene = new_scene(task=STAYS, has_processes=False, release_delay=delay)
    job = scene.run("a")
    if isinstance(error, TimeLimitExceeded):
        job.timeout_callback(False, 3.0)
    else:
        info = info_of(error or UnpickleableExceptionWrapper("m", "LockError", (), "LockError()"))
        info.type = known
        scene.got["a"].on_failure(info)
    assert errors == [known]
    is_wanted = known is ReleaseMessage
    assert scene.fate("a") == f"released 11 {'asked by task' if is_wanted else 'failed'}"
    assert ("task work[a] released its message" in caplog.text) is is_wanted
    assert (": tenant is busy" in caplog.text) is is_wanted


def test_a_thread_cannot_be_cancelled_and_its_task_goes_on(new_scene: New) -> None:
    scene = new_scene(has_processes=False)
    job = scene.run("a")
    scene.got["a"].cancel(scene.pool)
    job.callback((0, None, 0.1))
    assert scene.fate("a") == "deleted"


def test_a_greenlet_that_celery_has_killed_did_not_succeed(new_scene: New) -> None:
    scene = new_scene(has_processes=False, is_green=True)
    job = scene.run("a")
    scene.got["a"].cancel(scene.pool)
    job.callback((0, None, 0.1))
    assert scene.fate("a") == "released 0 cancelled"


@pytest.mark.parametrize(
    ("status", "is_stopped"), [(LeaseStatus.LOST, True), (LeaseStatus.OWNED, False)]
)
def test_a_lost_task_is_stopped_and_its_late_ack_deletes_nothing(
    new_scene: New, status: LeaseStatus, *, is_stopped: bool
) -> None:
    scene = new_scene(on_lost="terminate")
    job = scene.run("a")
    scene.set_status("a", status)
    scene.got["a"].stop_lost_task(scene.pool)
    assert scene.pool.stopped == ([4711] if is_stopped else [])
    job.callback((0, None, 0.1))
    assert scene.fate("a") == ("disowned" if is_stopped else "deleted")
    assert scene.sqs.mock_calls == []

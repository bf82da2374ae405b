"""Messages that run as a batch, as with celery-batches: each is settled when its batch ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo

from celery_sqs_heartbeat.contrib.batches import guard_batches
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from tests.unit.scene import Scene

New = Callable[..., Scene]
LOST, HELD, DELETED = "released 0 failed", "held", "deleted"


class Timed:
    """A timer's entry."""

    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Batches:
    """A worker with a task that gathers requests, as in celery-batches.

    Attributes:
        parts: How many jobs a flush starts.
        error: Raised by a flush, after its jobs.
        ran: The ids of what each job has run.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene, self.pool = scene, scene.pool
        self.parts, self.error = 1, None
        self.ran: list[list[str]] = []
        task = SimpleNamespace(flush=self._flush, Strategy=self._strategy)
        scene.task.flush, scene.task.Strategy = task.flush, task.Strategy
        guard_batches(SimpleNamespace(tasks={"work": scene.task}), self.pool)  # type: ignore[arg-type]

    def flush(self, *ids: str) -> list[Any]:
        """Deliver messages, and flush them. Return the pool's jobs."""
        new = [each for each in ids if each not in self.scene.got]
        if new:
            self.scene.deliver(*new)
        self.scene.task.flush([self.scene.got[each] for each in ids])
        return self.pool.jobs

    @property
    def fates(self) -> list[str]:
        return [self.scene.fate(each) for each in self.scene.got]

    def _strategy(self, task: Any, app: Any, consumer: Any) -> Any:
        # As celery-batches does, at a consumer's first message.
        if getattr(task, "_tref", None) is None:
            task._tref = Timed()
        return app, consumer

    def _flush(self, requests: list[Any]) -> None:
        def on_return(result: Any) -> None:
            for request in requests:
                request.acknowledge()

        def target(*args: Any) -> None:
            self.ran.append([request.id for request in requests])

        for _ in range(self.parts):
            self.pool.apply_async(
                target, ("work", "id"), accept_callback=lambda *_: None, callback=on_return
            )
        if self.error is not None:
            raise self.error


@pytest.fixture
def new_batches(new_scene: New) -> Callable[..., Batches]:
    return lambda **options: Batches(new_scene(release_delay=0, **options))


def failed() -> ExceptionInfo:
    try:
        raise OSError("exited prematurely")
    except OSError:
        return ExceptionInfo()


@pytest.mark.parametrize(
    ("what", "result"),
    [
        pytest.param("callback", None, id="it succeeded"),
        pytest.param("error_callback", failed(), id="its process was lost"),
        pytest.param("callback", failed(), id="sys.exit() in a thread"),
        pytest.param("callback", (1, failed(), 0.0), id="an error around it in a thread"),
    ],
)
def test_every_end_of_a_batch_settles_what_it_has_not_settled_itself(
    new_batches: Callable[..., Batches], caplog: pytest.LogCaptureFixture, what: str, result: Any
) -> None:
    made = new_batches()
    (job,) = made.flush("a", "b", "c")
    requests = made.scene.got
    assert not any(each.has_started() for each in requests.values())
    job.accept_callback(1, 0.0)
    assert all(each.has_started() for each in requests.values())
    requests["a"].acknowledge()
    made.scene.keeper.release("b", 5, "asked")
    getattr(job, what)(result)
    assert made.fates == [DELETED, "released 5 asked", LOST if result else DELETED]
    line = "task work[c] was neither acked nor rejected when its batch ended (OSError('exited"
    assert (line in caplog.text) is bool(result)
    assert caplog.text.count("was neither acked nor rejected") == bool(result)


@pytest.mark.parametrize(
    ("parts", "ends", "fates"),
    [
        pytest.param(0, [], [LOST], id="no job took them"),
        pytest.param(1, ["callback"], [HELD, DELETED], id="it failed after its job began"),
        pytest.param(2, ["error_callback"] * 2, [HELD, HELD, LOST], id="the last job settles"),
    ],
)
def test_a_flush_that_fails_leaves_its_messages_to_its_jobs(
    new_batches: Callable[..., Batches], parts: int, ends: list[str], fates: list[str]
) -> None:
    made = new_batches()
    made.parts, made.error = parts, OSError("no more room")  # type: ignore[assignment]
    with pytest.raises(OSError, match="no more room"):
        made.flush("a")
    seen = made.fates
    for job, end in zip(made.pool.jobs, ends, strict=True):
        getattr(job, end)(None if end == "callback" else failed())
        seen += made.fates
    assert seen == fates
    # Jobs of other tasks are left alone.
    made.pool.apply_async(print, (), callback=print)
    assert made.pool.jobs[-1].callback is print


def test_a_job_that_the_pool_does_not_take_releases_its_messages(
    new_batches: Callable[..., Batches],
) -> None:
    made = new_batches()
    made.pool.error = RuntimeError("no more room")
    with pytest.raises(RuntimeError):
        made.flush("a", "b")
    assert made.fates == [LOST, LOST]


def test_every_consumer_starts_its_own_flush_timer(new_batches: Callable[..., Batches]) -> None:
    # A lost connection clears the timers of Celery's event loop.
    task = new_batches().scene.task
    assert task.Strategy(task, "app", "first") == ("app", "first")
    first = task._tref
    task.Strategy(task, "app", "second")
    assert (first.is_cancelled, task._tref.is_cancelled) == (True, False)


def test_messages_that_are_no_longer_ours_are_left_out(
    new_batches: Callable[..., Batches],
) -> None:
    made = new_batches()
    made.scene.deliver("a", "b", "c")
    made.scene.keeper.release("a")
    made.scene.set_status("b", LeaseStatus.LOST)
    (job,) = made.flush("a", "b", "c")
    job.run()
    made.scene.keeper.let_expire("c")
    made.flush("c")
    assert (made.ran, len(made.pool.jobs)) == ([["c"]], 1)


@pytest.mark.parametrize("is_released", [True, False], ids=["released", "about to be released"])
def test_a_batch_does_not_run_if_a_message_of_it_was_released_while_it_waited(
    new_batches: Callable[..., Batches], caplog: pytest.LogCaptureFixture, *, is_released: bool
) -> None:
    # A job waits for a free greenlet, and a shutdown may release its messages meanwhile.
    made = new_batches(has_processes=False, is_green=True)
    (job,) = made.flush("a", "b")
    if is_released:
        made.scene.keeper.release("a")
    else:
        assert made.scene.got["a"].withdraw()
    job.accept_callback(1, 0.0)
    job.run()
    assert made.ran == []
    assert not made.scene.got["b"].has_started()
    job.callback(None)
    # What is still ours can't be taken out of the job.
    assert made.fates[1] == LOST
    assert ("task work[a] is not started: its message was released" in caplog.text) is is_released


def test_requests_that_wait_for_a_full_batch_end_with_their_consumer_and_running_ones_do_not(
    new_batches: Callable[..., Batches],
) -> None:
    made = new_batches()
    request = made.scene.deliver("a")
    assert not request.outlives_consumer()
    (job,) = made.flush("a")
    # The pool has the job, but no process has it yet: the pool forgets it with the connection.
    assert not request.outlives_consumer()
    job.job._ack(None, 0.0, 1, None)
    assert request.outlives_consumer()
    job.accept_callback(1, 0.0)
    assert request.outlives_consumer()


def test_one_lost_lease_does_not_stop_a_batch(new_batches: Callable[..., Batches]) -> None:
    made = new_batches()
    (job,) = made.flush("a")
    job.accept_callback(1, 0.0)
    made.scene.set_status("a", LeaseStatus.LOST)
    made.scene.got["a"].stop_lost_task(made.pool)
    assert made.fates == [HELD]

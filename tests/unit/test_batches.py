"""Requests that run as a batch know their job, and none stays unsettled after it."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo

from celery_sqs_heartbeat.contrib import batches
from celery_sqs_heartbeat.contrib.batches import Batch, guard_batches
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from tests.unit.request_harness import Request, RequestHarness


class Job:
    """A job of a pool of processes."""

    def __init__(self) -> None:
        self._is_accepted = False
        self._write_to = None

    def accept(self) -> None:
        """Note that a process has taken it."""
        self._is_accepted = True

    def accepted(self) -> bool:
        return self._is_accepted


class Pool:
    """Keeps jobs and their callbacks.

    Attributes:
        uses_semaphore: Whether it has processes.
    """

    uses_semaphore = True

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.targets: list[Any] = []
        self.options: list[dict[str, Any]] = []

    def apply_async(self, target: Any, args: Any = None, **options: Any) -> Job:
        self.jobs.append(Job())
        self.targets.append(target)
        self.options.append(options)
        return self.jobs[-1]

    def report(self, what: str, *args: Any, job: int = 0) -> None:
        self.options[job][what](*args)


class Gathering:
    """A task that gathers requests, as in celery-batches.

    Attributes:
        parts: How many jobs a flush starts.
        error: Raised by a flush.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.flushed: list[list[str]] = []
        self.parts = 1
        self.error: Exception | None = None

    def Strategy(self, task: Any, app: Any, consumer: Any) -> None: ...

    def flush(self, requests: list[Request]) -> Any:
        def on_accepted(pid: int, time_accepted: float) -> None: ...

        def on_return(result: Any) -> None:
            for request in requests:
                request.acknowledge()

        self.flushed.append([request.id for request in requests])
        for _ in range(self.parts):
            self._pool.apply_async(
                print, (requests,), accept_callback=on_accepted, callback=on_return
            )
        if self.error is not None:
            raise self.error


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def task(pool: Pool) -> Gathering:
    task = Gathering(pool)
    guard_batches(SimpleNamespace(tasks={"t": task}), pool)  # type: ignore[arg-type]
    return task


@pytest.fixture
def requests(desk: RequestHarness, task: Gathering) -> list[Request]:
    return [desk.receive(tag, task) for tag in ("a", "b", "c")]


def test_a_batch_that_succeeds_is_acked_and_nothing_else_happens(
    desk: RequestHarness,
    pool: Pool,
    task: Gathering,
    requests: list[Request],
) -> None:
    task.flush(requests)
    assert not any(request.has_started() for request in requests)
    pool.report("accept_callback", 1, 0.0)
    assert all(request.has_started() for request in requests)
    pool.report("callback", None)
    assert all(request.acknowledged for request in requests)
    assert desk.rejected == []


def failed() -> ExceptionInfo:
    try:
        raise OSError("exited prematurely")
    except OSError:
        return ExceptionInfo()


@pytest.mark.parametrize(
    ("what", "result"),
    [
        pytest.param("error_callback", failed(), id="its process was lost"),
        pytest.param("callback", failed(), id="sys.exit() in a thread"),
        pytest.param("callback", (1, failed(), 0.0), id="an error around it in a thread"),
    ],
)
def test_a_lost_batch_is_released_except_its_settled_messages(
    desk: RequestHarness,
    pool: Pool,
    task: Gathering,
    requests: list[Request],
    what: str,
    result: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    task.flush(requests)
    pool.report("accept_callback", 1, 0.0)
    requests[0].acknowledge()
    desk.keeper.release("b")
    pool.report(what, result)
    assert desk.rejected == [("c", True)]
    assert requests[2].rejects == [True]
    assert "task work[c] was neither acked nor rejected when its batch ended" in caplog.text
    assert "(OSError('exited prematurely')" in caplog.text


def test_a_flush_that_fails_releases_the_requests_without_a_job(
    desk: RequestHarness,
    task: Gathering,
    requests: list[Request],
) -> None:
    task.parts, task.error = 0, OSError("no more room")
    with pytest.raises(OSError, match="no more room"):
        task.flush(requests)
    assert [tag for tag, _ in desk.rejected] == ["a", "b", "c"]


def test_a_flush_that_fails_late_leaves_its_job_alone(
    desk: RequestHarness,
    pool: Pool,
    task: Gathering,
    requests: list[Request],
) -> None:
    task.error = OSError("too late")
    with pytest.raises(OSError, match="too late"):
        task.flush(requests)
    assert desk.rejected == []
    pool.report("callback", None)
    assert desk.rejected == []
    assert requests[0].acknowledged


def test_the_last_of_several_jobs_settles_the_batch(
    desk: RequestHarness,
    pool: Pool,
    task: Gathering,
    requests: list[Request],
) -> None:
    task.parts = 2
    task.flush(requests)
    pool.report("error_callback", failed(), job=0)
    assert desk.rejected == []
    pool.report("error_callback", failed(), job=1)
    assert [tag for tag, _ in desk.rejected] == ["a", "b", "c"]


class Raced(deque[Any]):
    """A queue whose last item another thread takes at the last moment."""

    def popleft(self) -> Any:
        if len(self) == 1:
            self.clear()
        return super().popleft()


def test_a_job_that_ends_on_another_thread_as_the_flush_ends_settles_each_request_once(
    desk: RequestHarness, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "deque", Raced)
    Batch(requests, Pool()).end()
    assert [tag for tag, _ in desk.rejected] == ["a", "b"]


class Timed:
    """A timer's entry."""

    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def test_every_consumer_starts_its_own_flush_timer(pool: Pool) -> None:
    class Timing(Gathering):
        _tref: Timed | None = None

        @property
        def timer(self) -> Timed | None:
            return self._tref

        def Strategy(self, task: Any, app: Any, consumer: Any) -> Any:
            # As celery-batches does, at a consumer's first message.
            if self._tref is None:
                self._tref = Timed()
            return app, consumer

    task, untimed = Timing(pool), Gathering(pool)
    app: Any = SimpleNamespace(tasks={"t": task, "u": untimed})
    guard_batches(app, pool)
    assert task.Strategy(task, app, "first") == (app, "first")
    first = task.timer
    # A lost connection clears the timers of Celery's event loop.
    task.Strategy(task, app, "second")
    assert first is not None
    assert first.is_cancelled
    assert task.timer is not None
    assert not task.timer.is_cancelled
    untimed.Strategy(untimed, app, "second")
    assert not hasattr(untimed, "_tref")


def test_messages_that_are_no_longer_ours_are_left_out(
    desk: RequestHarness,
    task: Gathering,
    requests: list[Request],
) -> None:
    desk.keeper.release("a")
    desk.set_status("b", LeaseStatus.LOST)
    task.flush(requests)
    assert task.flushed == [["c"]]
    desk.keeper.let_expire("c")
    task.flush(requests[2:])
    assert task.flushed == [["c"]]


@pytest.fixture
def green(pool: Pool) -> Pool:
    """A pool where a job waits for a free greenlet, and its messages may be released."""
    pool.uses_semaphore = False
    return pool


def test_a_batch_whose_messages_were_released_while_it_waited_does_not_run(
    desk: RequestHarness,
    green: Pool,
    task: Gathering,
    requests: list[Request],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    task.flush(requests)
    for tag in ("a", "b"):
        desk.keeper.release(tag)
    green.report("accept_callback", 1, 0.0)
    green.targets[0](requests)
    green.report("callback", None)
    assert capsys.readouterr().out == ""
    assert not any(request.has_started() for request in requests)
    assert "task work[a] is not started: its message was released" in caplog.text
    # A message that is still ours is released, too: it can't be taken out of the job.
    assert desk.rejected == [("c", True)]


def test_a_batch_with_a_message_that_is_about_to_be_released_does_not_run(
    desk: RequestHarness,
    green: Pool,
    task: Gathering,
    requests: list[Request],
    capsys: pytest.CaptureFixture[str],
) -> None:
    task.flush(requests)
    assert requests[1].withdraw()
    green.report("accept_callback", 1, 0.0)
    green.targets[0](requests)
    assert capsys.readouterr().out == ""
    assert not any(request.has_started() for request in requests)


def test_a_job_runs_although_another_job_of_its_batch_has_settled_messages(
    desk: RequestHarness,
    green: Pool,
    task: Gathering,
    requests: list[Request],
    capsys: pytest.CaptureFixture[str],
) -> None:
    task.parts = 2
    task.flush(requests)
    green.report("accept_callback", 1, 0.0, job=0)
    requests[0].acknowledge()
    desk.keeper.done("a")
    green.report("accept_callback", 1, 0.0, job=1)
    green.targets[1]("runs")
    assert capsys.readouterr().out == "runs\n"


def test_jobs_of_other_tasks_are_left_alone(pool: Pool, task: Gathering) -> None:
    pool.apply_async(print, (), callback=print)
    assert pool.options == [{"callback": print}]


def test_requests_that_wait_for_a_full_batch_end_with_their_consumer_and_running_ones_do_not(
    pool: Pool, task: Gathering, requests: list[Request]
) -> None:
    request = requests[0]
    assert not request.outlives_consumer()
    task.flush(requests)
    # The pool has the job, but no process has it yet: the pool forgets it with the connection.
    assert not request.outlives_consumer()
    pool.jobs[0].accept()
    assert request.outlives_consumer()
    pool.report("accept_callback", 1, 0.0)
    assert request.outlives_consumer()


def test_requests_in_a_tasks_own_strategy_count_as_running(desk: RequestHarness) -> None:
    own = SimpleNamespace(Strategy=lambda task, app, consumer: None)
    for request, runs in ((desk.receive("own", own), True), (desk.receive("celery's"), False)):
        assert request.outlives_consumer() is runs
        assert request.has_started() is runs


def test_one_lost_lease_does_not_stop_a_batch(
    desk: RequestHarness,
    pool: Pool,
    task: Gathering,
    requests: list[Request],
) -> None:
    task.flush(requests)
    pool.report("accept_callback", 1, 0.0)
    desk.set_status("a", LeaseStatus.LOST)
    requests[0].stop_lost_task(pool)
    assert not desk.keeper.is_disowned("a")

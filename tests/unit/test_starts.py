"""A task that can't be given to the pool takes no slot, and ends the worker only with its pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.request import create_request_cls

from celery_sqs_heartbeat.worker.requests import LeasedRequest
from celery_sqs_heartbeat.worker.starts import will_run
from tests.support.insides import give_to_pool, job_of_process

Give = Callable[[Any], Any]
TASK = SimpleNamespace(time_limit=None, soft_time_limit=None, acks_late=True)


class CelerysRequest:
    """Asks the result backend before it asks the pool, as Celery's request does."""

    name = type = "t"
    task: Any = SimpleNamespace(Strategy="celery.worker.strategy:default")
    request_dict = body = content_type = content_encoding = None
    time_limits: Any = (None, None)
    is_revoked = False

    def __init__(self, key: str) -> None:
        self.id = self.task_id = key

    def revoked(self) -> bool:
        return self.is_revoked

    def on_accepted(self, pid: Any, time_accepted: Any) -> None: ...

    def on_failure(self, exc_info: Any) -> None: ...

    def on_timeout(self, soft: bool, timeout: float) -> None: ...


class Unstartable(LeasedRequest, CelerysRequest):
    """A request of a worker with a heartbeat, whose task the pool does not take."""

    def __init__(self, key: str, check: Callable[[Exception], object]) -> None:
        CelerysRequest.__init__(self, key)
        self.message = SimpleNamespace(delivery_tag=key)
        self.left: list[str] = []
        self._heartbeat: Any = SimpleNamespace(
            check_pool=check, is_ending=False, note_run=self.left.append
        )

    def is_not_ours(self) -> bool:
        return False

    def give_up(self, error: Exception, *, is_refused: bool = False) -> str:
        return ""


class Worker:
    """Celery's worker and the class that it derives from ours, with a pool of the test."""

    def __init__(self, give: Give) -> None:
        self.checked: list[Exception] = []
        self._pool = SimpleNamespace(
            apply_async=lambda trace, *, correlation_id, **options: give(correlation_id)
        )

    def derived(self, base: type) -> Any:
        app = SimpleNamespace(use_fast_trace_task=False)
        return create_request_cls(base, TASK, self._pool, "here", None, app=app)

    def request(self, key: str) -> Any:
        return self.derived(Unstartable)(key, self.checked.append)

    def start(self, request: Any) -> bool:
        """Start a request's task; return whether its slot is free again."""
        return give_to_pool(request, self._pool)


def refusing(error: Exception) -> Give:
    def give(key: str) -> Any:
        raise error

    return give


def test_a_request_that_is_not_ours_fails_as_before() -> None:
    worker = Worker(refusing(ValueError("foreign")))
    with pytest.raises(ValueError, match="foreign"):
        worker.start(worker.derived(CelerysRequest)("a"))


def test_a_start_that_fails_frees_the_slot_and_one_that_does_not_keeps_it() -> None:
    broken, sound = Worker(refusing(RuntimeError("the pool is broken"))), Worker(lambda key: None)
    refused, taken, bad, revoked = (each.request("a") for each in (broken, sound, sound, sound))
    bad.time_limits, revoked.is_revoked = None, True
    for worker, request in ((broken, refused), (sound, taken), (sound, bad), (sound, revoked)):
        assert worker.start(request) is (request is not taken)
        # Otherwise it would count as one that the pool has to run, and leave no room.
        assert bool(request.left) is (request is not taken)


@pytest.mark.parametrize("write_to", [None, "a process"])
def test_a_request_knows_the_job_that_its_start_made(write_to: object) -> None:
    job = job_of_process(accepted=False, write_to=write_to)
    worker = Worker(lambda key: job)
    request = worker.request("a")
    assert not request.outlives_consumer()
    worker.start(request)
    assert request.outlives_consumer() is (write_to is not None)


def test_a_request_whose_class_celery_does_not_derive_is_guarded_too() -> None:
    class OfItsOwnStrategy(CelerysRequest):
        def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
            return pool.apply_async(print, correlation_id=self.id)

    class Ours(Unstartable, OfItsOwnStrategy): ...

    worker = Worker(refusing(RuntimeError("the pool is broken")))
    assert worker.start(Ours("a", worker.checked.append))
    assert [str(each) for each in worker.checked] == ["the pool is broken"]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (job_of_process(accepted=False, write_to=None), False),
        (job_of_process(accepted=True, write_to=None), True),
        (job_of_process(accepted=False, write_to="a process"), True),
        # Of threads or greenlets.
        (None, True),
        (Future(), True),
    ],
)
def test_a_job_outlives_its_consumer_unless_no_process_has_it_yet(job: Any, expected: bool) -> None:
    assert will_run(job) is expected

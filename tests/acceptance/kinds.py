"""Tasks of many kinds; a worker of `proj` loads them by the setting `imports`."""

from __future__ import annotations

from typing import Any

from celery import Task
from celery.backends.base import DisabledBackend
from celery.exceptions import Reject

from tests.acceptance.proj import app, note

MODULE = __name__


@app.task(acks_late=False)
def early(key: str) -> None:
    note("start", key)
    note("end", key)


@app.task(acks_late=False)
def early_and_fails(key: str) -> None:
    note("start", key)
    raise ValueError(key)


@app.task
def acked_though_it_fails(key: str) -> None:
    note("start", key)
    raise ValueError(key)


@app.task(ignore_result=False)
def returns(key: str) -> str:
    note("start", key)
    note("end", key)
    return key


@app.task(bind=True)
def retried_once(self: Task[Any, Any], key: str) -> None:
    note("start", key)
    if not self.request.retries:
        raise self.retry(countdown=0)
    note("end", key)


@app.task(bind=True, max_retries=0)
def out_of_retries(self: Task[Any, Any], key: str) -> None:
    note("start", key)
    raise self.retry(countdown=0)


@app.task(rate_limit="5/s")
def limited(key: str) -> None:
    note("start", key)
    note("end", key)


@app.task(rate_limit="4/m")
def four_a_minute(key: str) -> None:
    note("start", key)
    note("end", key)


@app.task
def rejects(key: str) -> None:
    note("start", key)
    raise Reject(key, requeue=False)


class Down(DisabledBackend):
    """A result backend that can't be reached."""

    def store_result(self, *args: Any, **kwargs: Any) -> None:
        raise ConnectionError("the result backend is down")

"""A shutdown releases a message unless its task has started, in any order of the threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from celery_sqs_heartbeat.worker.ending import release_unstarted
from celery_sqs_heartbeat.worker.requests import LeasedRequest


class Waiting(LeasedRequest):
    """A request whose task waits in a pool of threads."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self.is_claimed_meanwhile = False

    def has_started(self) -> bool:
        # A thread of the pool claims the start, and says only later that the task runs.
        if self.is_claimed_meanwhile:
            assert self.claim_start()
        return False

    def is_held(self) -> bool:
        return True

    def release(self, cause: str) -> None:
        self.released.append(cause)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_task_that_starts_as_the_worker_shuts_down_keeps_its_message(*, is_claimed: bool) -> None:
    request = Waiting()
    request.is_claimed_meanwhile = is_claimed
    groups = SimpleNamespace(leave=lambda cause: None)
    heartbeat = SimpleNamespace(groups=groups, arriving=set(), requests={"key": request})
    executor = SimpleNamespace(shutdown=lambda **options: None)
    release_unstarted(cast("Any", heartbeat), SimpleNamespace(executor=executor))
    assert request.released == ([] if is_claimed else ["shutdown"])
    assert request.claim_start() is is_claimed

"""Private parts of other projects that tests need, each with the reason.

Any release may rename them. So they are all here, and the tests use them only by these names
(`tests/acceptance/renamed.py` tests a renaming like that).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kombu.transport
import pytest
from billiard.pool import ApplyResult, TimeoutHandler
from celery import _state
from celery.worker.worker import WorkController


def credentials_of(client: Any) -> Any:
    """Return the credentials of a boto3 client. Its requests do not show the secret."""
    return client._request_signer._credentials


def slots_taken(channel: Any) -> set[str]:
    """Return the tags that count against a channel's prefetch limit. kombu only counts them."""
    qos = channel.qos
    return {tag for tag in qos._delivered if tag not in qos._dirty}


def give_to_pool(request: Any, pool: Any) -> bool:
    """Have Celery's worker pass a task to its pool. Return whether it has freed the slot again."""
    freed: list[bool] = []
    worker = SimpleNamespace(pool=pool, _quick_release=lambda: freed.append(True))
    WorkController._process_task(worker, request)
    return bool(freed)


def kill_late(seconds: float) -> None:
    """Have pools of processes wait before they kill a process that exceeded its time limit."""
    kill = TimeoutHandler._trywaitkill

    def wait_and_kill(self: TimeoutHandler, process: Any) -> None:
        time.sleep(seconds)
        kill(self, process)

    TimeoutHandler._trywaitkill = wait_and_kill


def job_of_process(*, accepted: bool, write_to: object) -> Any:
    """Return a job that a pool process has accepted, or that is being written to one."""
    job = ApplyResult({}, None)
    if accepted:
        job._ack(None, 0.0, 1, None)
    job._write_to = write_to
    return job


def killable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a target as Celery's gevent pool does on a greenlet, without using that pool."""
    from celery.concurrency.gevent import TaskPool

    wrapped: Callable[..., Any] = TaskPool._make_killable_target(target)
    return wrapped


def ready_lock_of(hub: Any) -> Any:
    """Return the lock that callers of kombu's event loop need; None before 5.7."""
    return getattr(hub, "_ready_lock", None)


def forget_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kombu look up each transport again during the test."""
    monkeypatch.setattr(kombu.transport, "_transport_cache", {})


def hide_shared_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the tasks of other tests from new apps. Celery shares tasks within the process."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())


def restore_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore Celery's current app, default app and shared tasks after the test."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    monkeypatch.setattr(_state, "default_app", _state.default_app)
    monkeypatch.setattr(_state._tls, "current_app", _state._tls.current_app)

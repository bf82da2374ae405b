"""Privates of other projects that tests need, each with the reason.

They may be renamed with any release. So all are here, and the tests touch none but by these names
(`tests/acceptance/renamed.py` is about such a renaming).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kombu.transport
import pytest
from billiard.pool import ApplyResult
from celery import _state
from celery.worker.worker import WorkController


def credentials_of(client: Any) -> Any:
    """Return what a boto3 client signs with: what it sends does not show the secret."""
    return client._request_signer._credentials


def slots_taken(channel: Any) -> set[str]:
    """Return the tags that count against a channel's prefetch limit: kombu says how many."""
    qos = channel.qos
    return {tag for tag in qos._delivered if tag not in qos._dirty}


def give_to_pool(request: Any, pool: Any) -> bool:
    """Have Celery's worker give a task to its pool; return whether it has freed the slot again."""
    freed: list[bool] = []
    worker = SimpleNamespace(pool=pool, _quick_release=lambda: freed.append(True))
    WorkController._process_task(worker, request)
    return bool(freed)


def forget_jobs(pool: Any) -> None:
    """Have Celery's pool of processes lose its jobs, as it does in the middle of its own faults."""
    for job in list(pool._pool._cache.values()):
        job.discard()


def job_of_process(*, accepted: bool, write_to: object) -> Any:
    """Return a job of a pool of processes, which one has accepted or is being written."""
    job = ApplyResult({}, None)
    if accepted:
        job._ack(None, 0.0, 1, None)
    job._write_to = write_to
    return job


def killable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a target as Celery's gevent pool does on a greenlet, without such a pool."""
    from celery.concurrency.gevent import TaskPool

    wrapped: Callable[..., Any] = TaskPool._make_killable_target(target)
    return wrapped


def uses_curl(client: Any) -> bool:
    """Return whether kombu's HTTP client sends by curl: that of 5.5 blocks instead."""
    return hasattr(client, "_curls")


def add_poll(polling: Any, request: Any) -> None:
    """Have a request sent by the client of a connection that `sending_for` has returned."""
    polling._httpclient.add_request(request)


def is_over(client: Any) -> bool:
    """Have curl work, and return whether all requests are answered. None is handed over."""
    _, active = client._multi.perform()
    return not active


def read_answers(client: Any) -> None:
    """Have kombu hand over what is answered."""
    client._process_pending_requests()


def ready_lock_of(hub: Any) -> Any:
    """Return the lock that kombu's event loop is called under; None before 5.7."""
    return getattr(hub, "_ready_lock", None)


def forget_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kombu look up each transport anew during the test."""
    monkeypatch.setattr(kombu.transport, "_transport_cache", {})


def hide_shared_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tasks of other tests from new apps: Celery shares them within the process."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())


def restore_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Celery's current app, default app and shared tasks be as before after the test."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    monkeypatch.setattr(_state, "default_app", _state.default_app)
    monkeypatch.setattr(_state._tls, "current_app", _state._tls.current_app)


def is_nothing_cached(spark: Any) -> bool:
    """Return whether Spark keeps no table in memory. Its public catalog asks by name only."""
    return bool(spark._jsparkSession.sharedState().cacheManager().isEmpty())

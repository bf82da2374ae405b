"""When the soak's workers record events, if the audit relies on the time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery.bootsteps import CLOSE, RUN
from celery.exceptions import WorkerShutdown
from celery.signals import task_received
from celery.worker import state
from celery.worker.consumer import Consumer

from tests.soak import proj


def losing(lose: Callable[[], None], go_on: Callable[[Exception], None]) -> Any:
    """Return the parts that Celery's consumer needs to start, lose its connection, and end."""

    def end(*_: object) -> None:
        blueprint.state = CLOSE

    blueprint = SimpleNamespace(state=RUN, start=lambda parent: lose(), restart=end)
    consumer: Any = SimpleNamespace(
        blueprint=blueprint,
        restart_count=0,
        app=SimpleNamespace(
            conf=Conf(broker_connection_retry=True, broker_channel_error_retry=False)
        ),
        connection=object(),
        connection_errors=(OSError,),
        channel_errors=(),
        hub=None,
        steps=[],
        first_connection_attempt=False,
        _get_connection_retry_type=lambda is_first: "broker_connection_retry",
        _cancel_connection_timer_entries=lambda: None,
        on_connection_error_after_connected=go_on,
        on_close=lambda: None,
    )
    proj.WritesDisconnects(consumer)
    return consumer


class Conf(dict[str, bool]):
    """Settings that are read as items and as attributes."""

    __getattr__ = dict.__getitem__


def test_a_lost_connection_is_recorded_before_celery_waits_for_its_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(proj, "write", done.append)
    error = OSError("lost")

    def lose() -> None:
        raise error

    Consumer.start(losing(lose, done.append))
    assert done == ["disconnect", error]


def test_a_connection_lost_during_a_shutdown_is_recorded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(proj, "write", done.append)

    def lose() -> None:
        monkeypatch.setattr(state, "should_stop", 0)
        raise OSError("lost")

    with pytest.raises(WorkerShutdown):
        Consumer.start(losing(lose, done.append))
    assert done == ["disconnect"]


def test_a_message_is_recorded_when_celery_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(proj, "write", lambda what, **more: done.append((what, more)))
    message = {"MessageId": "m", "Attributes": {"ApproximateReceiveCount": "2"}}
    delivered = SimpleNamespace(delivery_info={"sqs_message": message})
    task_received.send(sender=None, request=SimpleNamespace(id="t", message=delivered))
    assert done == [("arrive", {"key": "t", "message_id": "m", "count": 2})]

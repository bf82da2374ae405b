"""A broken worker exits, regardless of the error that broke it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from celery.bootsteps import RUN
from celery.exceptions import WorkerShutdown
from celery.platforms import EX_FAILURE
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.asynchronous import Hub

from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.worker.shutdown import end_worker


@pytest.fixture(autouse=True)
def not_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "should_stop", None)


class Conf(dict[str, bool]):
    broker_channel_error_retry = True


class Reconnected(Exception):
    """Celery starts the consumer again."""


def consume(error: Exception) -> None:
    """Run Celery's consumer on an event loop in which the worker ends."""
    hub = Hub()
    end_worker(hub, error)

    def restart(consumer: Any) -> None:
        raise Reconnected

    consumer: Any = SimpleNamespace(
        blueprint=SimpleNamespace(
            state=RUN, start=lambda consumer: next(hub.loop), restart=restart
        ),
        hub=None,
        restart_count=0,
        app=SimpleNamespace(conf=Conf(retry=True)),
        connection=None,
        connection_errors=Transport.connection_errors,
        channel_errors=Transport.channel_errors,
        first_connection_attempt=False,
        _get_connection_retry_type=lambda is_at_start: "retry",
        on_connection_error_before_connected=lambda error: None,
        on_close=lambda: None,
        _cancel_connection_timer_entries=lambda: None,
    )
    try:
        Consumer.start(consumer)
    finally:
        hub.close()


def test_the_error_reaches_the_worker_as_in_stock_celery() -> None:
    error = NotImplementedError("the pool cannot grow")
    with pytest.raises(NotImplementedError) as caught:
        consume(error)
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [OSError(5, "no backend"), EndpointConnectionError(endpoint_url="https://results")]
)
def test_an_error_after_which_celery_reconnects_also_ends_the_worker(error: Exception) -> None:
    with pytest.raises(WorkerShutdown) as caught:
        consume(error)
    assert caught.value.code == EX_FAILURE


def test_a_worker_without_an_event_loop_is_stopped() -> None:
    end_worker(None, NotImplementedError())
    assert state.should_stop == EX_FAILURE

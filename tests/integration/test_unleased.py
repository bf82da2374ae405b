"""A message that Celery receives past the keeper is logged. One that the keeper knew is not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.starts import report_unleased
from tests.support.joined import Joined
from tests.support.proxy import FaultProxy

REQUEST = SimpleNamespace(name="tasks.add", id="1-2-3")


@pytest.fixture
def heartbeat(proxy: FaultProxy) -> Iterator[Heartbeat]:
    """A heartbeat that consumes from the queues `q` and `other` with leases."""
    joined = Joined()
    heartbeat = Heartbeat(
        keeper=joined.worker,
        settings=read_settings({}.get),
        queues=QueueDirectory(BotoSqs(joined.clients).queue_attributes, lambda job: job()),
        clients=joined.clients,
    )
    config = BrokerConfig(
        endpoint_url=proxy.url, region="us-east-1", use_ssl=False, access_key="a", secret_key="b"
    )
    for queue in ("q", "other"):
        heartbeat.leased.prepare(queue, f"{proxy.url}/0/{queue}", config)
    yield heartbeat
    joined.close()


def message(proxy: FaultProxy, handle: str, queue: str = "q") -> Any:
    info = {"sqs_queue": f"{proxy.url}/0/{queue}", "sqs_message": {"MessageId": "m-1"}}
    return SimpleNamespace(delivery_tag=handle, delivery_info=info)


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_an_unleased_message_is_logged_once_per_queue(
    heartbeat: Heartbeat, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    for queue in ("q", "other"):
        for handle in ("a", "b"):
            report_unleased(heartbeat, message(proxy, handle, queue), REQUEST)
    assert [line.split(" has no lease")[0] for line in reported(caplog)] == [
        f"sqs-heartbeat: message m-1 of queue {queue}, task tasks.add[1-2-3],"
        for queue in ("q", "other")
    ]


def test_a_message_whose_lease_has_ended_by_then_is_not_logged(
    heartbeat: Heartbeat, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat.arriving.add("a")
    report_unleased(heartbeat, message(proxy, "a"), REQUEST)
    assert reported(caplog) == []


def test_a_message_of_a_queue_without_leases_is_not_logged(
    heartbeat: Heartbeat, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    report_unleased(heartbeat, message(proxy, "a", queue="no-ack"), REQUEST)
    report_unleased(heartbeat, SimpleNamespace(delivery_tag="a", delivery_info=None), REQUEST)
    assert reported(caplog) == []

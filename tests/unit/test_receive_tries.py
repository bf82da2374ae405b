"""The sending time of a receive is that of its own last try."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.receive_tries import following

URL = "http://127.0.0.1:1/q"


@pytest.fixture
def client() -> Any:
    return boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )


def new_poll() -> Poll:
    return Poll(queue="q", url=URL, sent_at=1.0, waits=1)


def send(client: Any) -> None:
    """Do what boto3 does when it sends a receive."""
    client.meta.events.emit("before-send.sqs.ReceiveMessage", request=None)


def test_each_try_moves_the_sending_time_and_each_failed_one_is_noted(client: Any) -> None:
    poll, failures = new_poll(), []
    note: Callable[[], object] = lambda: failures.append(1)  # noqa: E731
    with following(client, poll, note):
        send(client)
        first = poll.sent_at
        assert poll.is_sent
        assert first > 1.0
        assert not failures
        send(client)
        assert poll.sent_at > first
    assert len(failures) == 1
    last = poll.sent_at
    send(client)
    assert poll.sent_at == last


def test_a_receive_of_another_thread_does_not_move_the_sending_time(client: Any) -> None:
    poll, other = new_poll(), new_poll()

    def receive() -> None:
        with following(client, other, bool):
            send(client)

    with following(client, poll, bool):
        thread = threading.Thread(target=receive)
        thread.start()
        thread.join()
    assert other.is_sent
    assert (poll.is_sent, poll.sent_at) == (False, 1.0)

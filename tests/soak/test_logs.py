"""What the soak reads in a worker's log."""

from __future__ import annotations

import logging

import pytest

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.events import Event, EventKind
from tests.soak.logs import unrepeated_messages


def logged(cause: str, *, stops_group: bool, caplog: pytest.LogCaptureFixture) -> str:
    event = Event(
        kind=EventKind.MESSAGE_LAPSING,
        at=0.0,
        queue_url="http://127.0.0.1:1/1/q.fifo",
        message_id="a1-b2",
        task="work",
        task_id="t",
        receive_count=1,
        slack=1.0,
        cause=cause,
        group="g" if stops_group else None,
        stops_group=stops_group,
    )
    with caplog.at_level(logging.DEBUG):
        log_event(event)
    return caplog.text


@pytest.mark.parametrize("stops_group", [True, False])
@pytest.mark.parametrize(
    ("cause", "was_to_be_released"),
    [
        ("failed", True),
        ("worker died", True),
        ("shutdown", True),
        ("undeliverable", True),
        ("kept", False),
        ("arrived late", False),
        ("not settled", False),
    ],
)
def test_a_log_line_identifies_a_release_that_is_not_tried_again(
    cause: str, *, was_to_be_released: bool, stops_group: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = logged(cause, stops_group=stops_group, caplog=caplog)
    assert unrepeated_messages(log) == (["a1-b2"] if was_to_be_released else [])

"""What is logged of a function for the release delay that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.delays import failure_delay
from celery_sqs_heartbeat.transport.lease_rules import LeaseRules
from celery_sqs_heartbeat.transport.once import Once
from tests.support.leases import lease_of


def _fail(receive_count: int) -> float:
    raise KeyError("tenant")


@pytest.mark.parametrize(
    ("function", "said", "has_traceback"),
    [
        (lambda receive_count: "soon", "release_delay(1) returned 'soon': must be a number", False),
        (lambda receive_count: -1, "release_delay(1) returned -1: must be 0 to 43200", False),
        (_fail, "'tenant'", True),
    ],
)
def test_only_an_error_of_the_function_itself_is_logged_with_a_traceback(
    caplog: pytest.LogCaptureFixture,
    function: Callable[[int], Any],
    said: str,
    has_traceback: bool,
) -> None:
    settings = read_settings({"sqs_heartbeat_release_delay": function}.get)
    lease = lease_of("h")
    delay = failure_delay(
        lease,
        rules=LeaseRules(settings=settings, names={lease.queue_url: "q"}),
        queues=QueueDirectory(
            lambda url: QueueAttributes(30, max_receive_count=5), lambda job: job()
        ),
        once=Once(),
    )
    assert delay == 0
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert said in record.getMessage()
    assert bool(record.exc_info) is has_traceback

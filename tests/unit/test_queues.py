"""What a worker knows about queues, and what it logs about those that it can't read."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, QueueDirectory
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import PATIENCE

URL = "https://sqs/1/q"
PERMISSION = "permission sqs:GetQueueAttributes is missing"


def answer(code: str, operation: str = "GetQueueAttributes", status: int = 400) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "as SQS says it"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, operation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(answer("AccessDenied", status=403), PERMISSION, id="denied"),
        pytest.param(answer("AccessDeniedException"), PERMISSION, id="denied by another code"),
        pytest.param(answer("QueueDoesNotExist"), "knows no such queue", id="no queue"),
        pytest.param(answer("RequestThrottled"), "asks for fewer calls", id="throttled"),
        pytest.param(answer("InternalError", status=500), "the call failed", id="a fault of SQS"),
        pytest.param(
            answer("AccessDenied", "AssumeRoleWithWebIdentity"), "the call failed", id="no role"
        ),
        pytest.param(TimeoutError("timed out"), "did not answer in time", id="a timeout"),
        pytest.param(TimeoutError(), "did not answer in time (TimeoutError)", id="without a text"),
        pytest.param(
            ReadTimeoutError(endpoint_url=URL), "did not answer in time", id="a read timeout"
        ),
        pytest.param(
            ConnectTimeoutError(endpoint_url=URL), "did not answer in time", id="no connection"
        ),
        pytest.param(EndpointConnectionError(endpoint_url=URL), "Could not connect", id="refused"),
        pytest.param(NoCredentialsError(), "Unable to locate credentials", id="no credentials"),
    ],
)
def test_the_log_names_the_cause_for_which_attributes_could_not_be_read(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def read(url: str) -> QueueAttributes:
        raise error

    assert not QueueDirectory(read, lambda job: job()).get(URL).is_known
    (line,) = caplog.messages
    assert said in line
    assert str(error) in line
    assert URL in line
    assert ("permission" in line) is (said == PERMISSION)


def test_other_threads_may_ask_while_a_refresh_begins() -> None:
    """Another greenlet does that if starting a thread lets others run."""

    def run(job: Callable[[], None]) -> None:
        other = threading.Thread(
            target=lambda: asked.append(directory.get(URL).visibility_timeout), daemon=True
        )
        other.start()
        other.join(PATIENCE)
        job()

    asked: list[int] = []
    timeouts = iter([30, 60])
    clock = FakeClock()
    directory = QueueDirectory(
        lambda url: QueueAttributes(visibility_timeout=next(timeouts)), run, clock
    )
    assert directory.get(URL).visibility_timeout == 30
    clock.advance(REFRESH_SECONDS)
    assert directory.get(URL).visibility_timeout == 30
    assert asked == [30]
    assert directory.get(URL).visibility_timeout == 60

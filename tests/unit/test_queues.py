"""What the log says of a queue whose attributes could not be read."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import QueueDirectory

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

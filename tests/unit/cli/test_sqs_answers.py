"""How the doctor interprets SQS's errors, without repeating their texts."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)

from celery_sqs_heartbeat.cli.queues.queue_facts import Answer, Tried
from celery_sqs_heartbeat.cli.queues.sqs_answers import of_error, of_payload, whether_permitted

SECRET = "wJalrXUtnFEMI"
ENDPOINT = "https://sqs.example"


def refusal(code: str, status: int = 400, operation: str = "GetQueueAttributes") -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": f"The canonical string has {SECRET}"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }
    return ClientError(answer, operation)


@pytest.mark.parametrize(
    ("error", "tried", "reason"),
    [
        (refusal("AccessDenied", 403), Tried.DENIED, "AccessDenied"),
        (refusal("AccessDeniedException", 400), Tried.DENIED, "AccessDeniedException"),
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), Tried.NO_QUEUE, "NonExistentQueue"),
        (refusal("com.amazonaws.sqs#QueueDoesNotExist"), Tried.NO_QUEUE, "QueueDoesNotExist"),
        (refusal("SignatureDoesNotMatch", 403), Tried.CREDENTIALS, "SignatureDoesNotMatch"),
        (refusal("InvalidClientTokenId", 403), Tried.CREDENTIALS, "InvalidClientTokenId"),
        (refusal("ExpiredToken", 403), Tried.CREDENTIALS, "ExpiredToken"),
        (refusal("AccessDenied", 403, "AssumeRole"), Tried.CREDENTIALS, "AssumeRole: AccessDenied"),
        (
            refusal("AccessDenied", 403, "AssumeRoleWithWebIdentity"),
            Tried.CREDENTIALS,
            "AssumeRoleWithWebIdentity: AccessDenied",
        ),
        (
            refusal("Forbidden", 403, "GetRoleCredentials"),
            Tried.CREDENTIALS,
            "GetRoleCredentials: Forbidden",
        ),
        (refusal("RequestThrottled"), Tried.BUSY, "RequestThrottled"),
        (refusal("InternalError", 500), Tried.BUSY, "InternalError"),
        (refusal("Whatever", 503), Tried.BUSY, "Whatever"),
        (refusal("InvalidAttributeName"), Tried.REFUSED, "InvalidAttributeName"),
        (refusal(""), Tried.REFUSED, "unknown"),
        (NoCredentialsError(), Tried.CREDENTIALS, "NoCredentialsError"),
        (
            EndpointConnectionError(endpoint_url=f"https://{SECRET}"),
            Tried.UNREACHABLE,
            f"EndpointConnectionError at {ENDPOINT}",
        ),
        (
            ConnectTimeoutError(endpoint_url="x"),
            Tried.UNREACHABLE,
            f"ConnectTimeoutError at {ENDPOINT}",
        ),
        (BotoCoreError(), Tried.UNREACHABLE, f"BotoCoreError at {ENDPOINT}"),
        (OSError(SECRET), Tried.UNREACHABLE, f"OSError at {ENDPOINT}"),
        (ParamValidationError(report=SECRET), Tried.REFUSED, "ParamValidationError"),
        (ValueError(f"Invalid endpoint: {SECRET}"), Tried.REFUSED, "ValueError"),
    ],
)
def test_an_error_becomes_an_answer(error: Exception, tried: Tried, reason: str) -> None:
    answer = of_error(error, "GetQueueAttributes", ENDPOINT, 0.0, 0.0)
    assert answer == Answer(tried=tried, reason=reason)
    assert SECRET not in repr(answer)


@pytest.mark.parametrize(
    ("answer", "tried"),
    [
        (Answer(tried=Tried.REFUSED, reason="InvalidParameterValue"), Tried.ALLOWED),
        (Answer(tried=Tried.REFUSED, reason="ReadCountOutOfRange"), Tried.ALLOWED),
        (Answer(tried=Tried.REFUSED, reason="InvalidAddress"), Tried.REFUSED),
        (Answer(tried=Tried.DENIED, reason="AccessDenied"), Tried.DENIED),
        (Answer(tried=Tried.ALLOWED, payload={}), Tried.ALLOWED),
        (
            Answer(tried=Tried.ALLOWED, payload={"Failed": [{"Code": "ReceiptHandleIsInvalid"}]}),
            Tried.ALLOWED,
        ),
        (Answer(tried=Tried.ALLOWED, payload={"Failed": [{"Code": "AccessDenied"}]}), Tried.DENIED),
    ],
)
def test_a_call_that_cant_succeed_shows_its_permission(answer: Answer, tried: Tried) -> None:
    assert whether_permitted(answer).tried is tried


@pytest.mark.parametrize(
    ("date", "skew"),
    [
        ("Thu, 01 Jan 1970 00:01:00 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", -20.0),
        ("yesterday", None),
        (None, None),
    ],
)
def test_the_clock_is_compared_at_the_middle_of_the_call(
    date: str | None, skew: float | None
) -> None:
    headers = {} if date is None else {"date": date}
    payload = {"ResponseMetadata": {"HTTPHeaders": headers}}
    assert of_payload(payload, 99.0, 101.0).skew == skew


def test_a_refusal_contains_the_time_too() -> None:
    error = refusal("SignatureDoesNotMatch", 403)
    error.response["ResponseMetadata"]["HTTPHeaders"]["date"] = "Thu, 01 Jan 1970 00:01:00 GMT"
    assert of_error(error, "GetQueueAttributes", ENDPOINT, 460.0, 460.0).skew == 400.0

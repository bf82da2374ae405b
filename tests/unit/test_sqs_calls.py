"""Calls of SQS: each becomes one request, and every answer or error an outcome for each entry.

An error that says nothing about the messages never counts as SQS's word on them.
"""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock, NonCallableMock

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from hypothesis import example, given
from hypothesis import strategies as st

from celery_sqs_heartbeat import ConfigurationError
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import (
    BotoSqs,
    QueueAttributes,
    of_error,
    of_exception,
    read_answer,
    read_attributes,
)
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool
from celery_sqs_heartbeat.sqs.options import find_session_function
from celery_sqs_heartbeat.sqs.queues import REFRESH_SECONDS, RETRY_SECONDS, QueueDirectory
from celery_sqs_heartbeat.testing import FakeClock
from tests.fuzz.shapes import FUZZ, answers, errors, exceptions, json_values, optional, scalars
from tests.support.leases import lease_of

URL = "https://sqs.eu-west-1.amazonaws.com/1/q"
CHANGE = "ChangeMessageVisibility"
#: Prefixes differ: JSON and query protocol, and other servers.
CODES = {
    Outcome.LOST: (
        "ReceiptHandleIsInvalid MessageNotInflight AWS.SimpleQueueService.MessageNotInflight "
        "com.amazonaws.sqs#ReceiptHandleIsInvalid"
    ),
    Outcome.NO_QUEUE: "AWS.SimpleQueueService.NonExistentQueue QueueDoesNotExist",
    Outcome.THROTTLED: "RequestThrottled ThrottlingException OverLimit KmsThrottled",
    Outcome.DENIED: "AccessDenied AccessDeniedException KmsAccessDenied",
    Outcome.FAILED: "InvalidClientTokenId ExpiredToken InternalError RequestTimeTooSkewed",
    Outcome.MALFORMED: "AWS.SimpleQueueService.BatchEntryIdsNotDistinct InvalidParameterValue",
    Outcome.UNKNOWN: "NeverHeardOf",
}
#: Refusals that share a code and differ by their text.
TEXTS = {
    "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].": Outcome.CAPPED,
    "Message does not exist or is not available for visibility timeout change.": Outcome.LOST,
    "The receipt handle has expired.": Outcome.LOST,
    "Value -1 for VisibilityTimeout": Outcome.MALFORMED,
}


@pytest.mark.parametrize(
    ("code", "expected"),
    [(code, outcome) for outcome, codes in CODES.items() for code in codes.split()],
)
def test_each_code_has_a_meaning(code: str, expected: Outcome) -> None:
    assert of_error({"Code": code, "Message": ""}) is expected


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_texts_tell_refusals_of_one_code_apart(text: str, expected: Outcome) -> None:
    assert of_error({"Code": "InvalidParameterValue", "Message": f"Reason: {text}"}) is expected


def client_error(code: str, status: int, operation: str = f"{CHANGE}Batch") -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": "as SQS says it"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, operation)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (client_error("InternalError", 500), Outcome.UNSURE),
        (client_error("BadGateway", 502), Outcome.UNKNOWN),
        (client_error("ServiceUnavailable", 503), Outcome.THROTTLED),
        (client_error("TooManyRequestsException", 429), Outcome.THROTTLED),
        (client_error("AccessDenied", 403), Outcome.DENIED),
        (client_error("AccessDenied", 403, CHANGE), Outcome.DENIED),
        # boto3 renews credentials within the call that needs them: nothing was sent.
        (client_error("AccessDenied", 403, "AssumeRoleWithWebIdentity"), Outcome.FAILED),
        (client_error("InternalFailure", 500, "GetRoleCredentials"), Outcome.FAILED),
        (client_error("QueueDoesNotExist", 400, "DeleteMessageBatch"), Outcome.FAILED),
        (ReadTimeoutError(endpoint_url="http://x"), Outcome.UNKNOWN),
        (ConnectionClosedError(endpoint_url="http://x"), Outcome.UNKNOWN),
        (ConnectionResetError(), Outcome.UNKNOWN),
        (ConnectTimeoutError(endpoint_url="http://x"), Outcome.FAILED),
        (EndpointConnectionError(endpoint_url="http://x"), Outcome.FAILED),
        (NoCredentialsError(), Outcome.FAILED),
        (CredentialRetrievalError(provider="x", error_msg="x"), Outcome.FAILED),
        (TokenRetrievalError(provider="sso", error_msg="x"), Outcome.FAILED),
        (UnauthorizedSSOTokenError(), Outcome.FAILED),
        (SSOTokenLoadError(error_msg="x"), Outcome.FAILED),
        (ParamValidationError(report="x"), Outcome.MALFORMED),
    ],
)
def test_a_call_that_fails_has_an_outcome_for_each_entry(
    error: Exception, expected: Outcome
) -> None:
    client = NonCallableMock(change_message_visibility_batch=Mock(side_effect=error))
    assert BotoSqs(client).send(call_of(CallKind.CHANGE_VISIBILITY, 2)) == [expected] * 2


def call_of(kind: CallKind, count: int) -> Call:
    lease = lease_of("h")
    action = Action.DELETE if kind is CallKind.DELETE else Action.EXTEND
    entries = tuple(Entry(lease, f"h{n}", action, 30 + n) for n in range(count))
    return Call(kind, URL, entries, 0.0)


@pytest.mark.parametrize("kind", CallKind)
def test_a_call_becomes_one_batch_request_with_distinct_valid_ids(kind: CallKind) -> None:
    client = NonCallableMock()
    BotoSqs(client, address=lambda url: f"{url}-elsewhere").send(call_of(kind, 10))
    ((name, _, request),) = client.method_calls
    entries = [{"Id": str(n), "ReceiptHandle": f"h{n}"} for n in range(10)]
    if kind is CallKind.CHANGE_VISIBILITY:
        entries = [{**each, "VisibilityTimeout": 30 + n} for n, each in enumerate(entries)]
    assert request == {"QueueUrl": f"{URL}-elsewhere", "Entries": entries}
    is_delete = kind is CallKind.DELETE
    assert name == ("delete_message_batch" if is_delete else "change_message_visibility_batch")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"Successful": [{"Id": "0"}, {"Id": "1"}]}, [Outcome.DONE, Outcome.DONE]),
        (
            {"Successful": [{"Id": "1"}], "Failed": [{"Id": "0", "Code": "RequestThrottled"}]},
            [Outcome.THROTTLED, Outcome.DONE],
        ),
        ({"Successful": [{"Id": "1"}]}, [Outcome.UNKNOWN, Outcome.DONE]),
        ({"Successful": [{"Id": "7"}, {"Id": 0}, {}, None, "0"]}, [Outcome.UNKNOWN] * 2),
        ("gibberish", [Outcome.UNKNOWN] * 2),
    ],
)
def test_each_entry_of_an_answer_has_its_outcome(answer: object, expected: list[Outcome]) -> None:
    assert read_answer(answer, 2) == expected


@FUZZ
@given(answer=answers, count=st.integers(1, 10), error=errors, exception=exceptions)
@example(answer={"Successful": [{"Id": "9" * 5000}]}, count=1, error={}, exception=KeyError())
def test_answers_and_errors_of_any_shape_have_outcomes(
    answer: Any, count: int, error: dict[str, Any], exception: Exception
) -> None:
    outcomes = read_answer(answer, count)
    assert len(outcomes) == count
    assert Outcome.DONE not in outcomes or "Successful" in json.dumps(answer)
    assert of_error(error) is not Outcome.DONE
    assert of_exception(exception, CHANGE) is not Outcome.DONE


def test_our_own_faults_do_not_count_as_answers() -> None:
    client = NonCallableMock(delete_message_batch=Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        BotoSqs(client).send(call_of(CallKind.DELETE, 1))


def test_a_call_without_a_client_was_not_sent_and_its_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = ["the vault is closed"]

    def client(queue_url: str) -> NonCallableMock:
        if faults:
            raise ConfigurationError(list(faults))
        return NonCallableMock()

    sqs = BotoSqs(client)
    for fault in ("the vault is closed", "the vault is closed", "the vault is gone"):
        faults[0] = fault
        assert sqs.send(call_of(CallKind.DELETE, 1)) == [Outcome.FAILED]
    again = faults.pop()
    sqs.send(call_of(CallKind.DELETE, 1))
    faults.append(again)
    sqs.send(call_of(CallKind.DELETE, 1))
    first, second, third = caplog.messages
    assert "the vault is closed; it is tried again" in first
    assert "the vault is gone" in second
    # After a call the same reason is logged again.
    assert third == second


# -- Queues --------------------------------------------------------------------------------------

numbers = st.integers(-5, 50_000).map(str) | scalars.map(str) | json_values
policies = optional(maxReceiveCount=numbers).map(json.dumps) | json_values.map(json.dumps)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"VisibilityTimeout": "45", "QueueArn": "a"}, QueueAttributes(45, None, arn="a")),
        (
            {"VisibilityTimeout": "45", "RedrivePolicy": '{"maxReceiveCount": "3"}'},
            QueueAttributes(45, 3),
        ),
        ({}, QueueAttributes(30, None)),
        ({"VisibilityTimeout": "?", "RedrivePolicy": "no json"}, QueueAttributes(30, None)),
    ],
)
def test_attributes_of_a_queue_are_read(
    attributes: dict[str, str], expected: QueueAttributes
) -> None:
    client = NonCallableMock(get_queue_attributes=Mock(return_value={"Attributes": attributes}))
    assert BotoSqs(client).queue_attributes(URL) == expected


@FUZZ
@given(attributes=optional(VisibilityTimeout=numbers, RedrivePolicy=policies | json_values))
@example(attributes={"RedrivePolicy": '{"maxReceiveCount": Infinity}'})
@example(attributes={"VisibilityTimeout": float("inf")})
@example(attributes={"RedrivePolicy": "[" * 100_000})
def test_attributes_of_any_shape_are_read(attributes: dict[str, Any]) -> None:
    read = read_attributes(attributes)
    assert isinstance(read.visibility_timeout, int)
    assert read.max_receive_count is None or isinstance(read.max_receive_count, int)


def unreadable(code: str, operation: str = "GetQueueAttributes", status: int = 400) -> ClientError:
    return client_error(code, status, operation)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (unreadable("AccessDenied", status=403), "permission sqs:GetQueueAttributes is missing"),
        (unreadable("QueueDoesNotExist"), "knows no such queue"),
        (unreadable("RequestThrottled"), "asks for fewer calls"),
        (unreadable("InternalError", status=500), "the call failed"),
        (unreadable("AccessDenied", "AssumeRoleWithWebIdentity"), "the call failed"),
        (TimeoutError(), "did not answer in time (TimeoutError)"),
        (ReadTimeoutError(endpoint_url=URL), "did not answer in time"),
        (ConnectTimeoutError(endpoint_url=URL), "did not answer in time"),
        (EndpointConnectionError(endpoint_url=URL), "Could not connect"),
    ],
)
def test_the_log_names_once_why_attributes_can_not_be_read(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    read, now = Mock(side_effect=error), FakeClock()
    directory = QueueDirectory(read, lambda job: job(), now)
    for _ in range(3):
        assert not directory.get(URL).is_known
        now.advance(RETRY_SECONDS)
    assert read.call_count == 3
    (line,) = caplog.messages
    assert said in line
    assert str(error) in line
    assert URL in line


def test_attributes_are_read_again_beside_their_use_and_stay_valid_if_that_fails() -> None:
    jobs: list[Any] = []
    read, now = Mock(side_effect=[QueueAttributes(30), QueueAttributes(60), OSError]), FakeClock()
    directory = QueueDirectory(read, jobs.append, now)
    found = []
    for _ in range(3):
        # The second one does not begin a refresh of its own: another greenlet may ask meanwhile.
        found += [directory.get(URL).visibility_timeout, directory.get(URL).visibility_timeout]
        while jobs:
            jobs.pop()()
        now.advance(REFRESH_SECONDS)
    assert found == [30, 30, 30, 30, 60, 60]
    assert directory.get(URL).visibility_timeout == 60
    assert read.call_count == 3


# -- Sessions ------------------------------------------------------------------------------------


def new_session() -> boto3.Session:
    return boto3.Session("theirs", "secret", region_name="eu-west-1")


def no_session() -> str:
    return "a session"


def fails() -> boto3.Session:
    raise RuntimeError("the vault is closed")


def test_the_session_of_the_users_function_signs_the_calls() -> None:
    clients = ClientPool(find_session_function(f"{__name__}:new_session"))
    config = BrokerConfig(
        endpoint_url=None, region="us-east-1", use_ssl=True, access_key="ours", secret_key="x"
    )
    clients.use(config, URL, 10.0)
    client, signed = clients(URL), list[str]()
    assert client.meta.region_name == "eu-west-1"

    def stop(request: Any, **_: Any) -> None:
        signed.append(str(request.headers["Authorization"]))
        raise ConnectionAbortedError

    client.meta.events.register("before-send", stop)
    with pytest.raises(ConnectionAbortedError):
        client.delete_message(QueueUrl=URL, ReceiptHandle="h")
    assert "Credential=theirs/" in signed[0]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no.such.module:new", "can't be imported"),
        (f"{__name__}:gone", "can't be imported"),
        (f"{__name__}:URL", "is not a function"),
        (f"{__name__}:fails", "failed (RuntimeError('the vault is closed')): it must return"),
        (f"{__name__}:no_session", "returned str: return a boto3.Session"),
    ],
)
def test_a_path_that_leads_to_no_session_is_refused(path: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_session_function(path)()
    assert f"sqs_heartbeat_session={path!r}" in str(refused.value)
    assert fault in str(refused.value)


@pytest.mark.parametrize("value", ["proj", "proj.aws", "proj:aws:new", ":new", "1:new", 5])
def test_the_setting_of_the_session_is_a_path(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be 'module:function'"):
        read_settings({"sqs_heartbeat_session": value}.get)
    settings = read_settings({"sqs_heartbeat_session": "proj.aws:new_session"}.get)
    assert settings.session == "proj.aws:new_session"

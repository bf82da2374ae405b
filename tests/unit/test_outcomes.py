"""The possible answers of SQS and the network, and what they mean for an entry."""

from __future__ import annotations

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

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import (
    BotoSqs,
    QueueAttributes,
    of_error,
    of_exception,
    read_answer,
    read_attributes,
)

BEYOND = (
    "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total "
    "VisibilityTimeout for the message is beyond the limit [43200 seconds]."
)
NOT_AVAILABLE = (
    "Value AQEB for parameter ReceiptHandle is invalid. Reason: Message does not exist "
    "or is not available for visibility timeout change."
)
EXPIRED = (
    "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("InvalidParameterValue", BEYOND, Outcome.CAPPED),
        ("InvalidParameterValue", NOT_AVAILABLE, Outcome.LOST),
        ("InvalidParameterValue", EXPIRED, Outcome.LOST),
        ("InvalidParameterValue", "Value -1 for VisibilityTimeout", Outcome.MALFORMED),
        ("ReceiptHandleIsInvalid", "", Outcome.LOST),
        ("MessageNotInflight", "", Outcome.LOST),
        ("AWS.SimpleQueueService.MessageNotInflight", "", Outcome.LOST),
        ("com.amazonaws.sqs#ReceiptHandleIsInvalid", "", Outcome.LOST),
        ("AWS.SimpleQueueService.NonExistentQueue", "", Outcome.NO_QUEUE),
        ("RequestThrottled", "", Outcome.THROTTLED),
        ("ThrottlingException", "", Outcome.THROTTLED),
        ("OverLimit", "", Outcome.THROTTLED),
        ("AccessDenied", "", Outcome.DENIED),
        ("AccessDeniedException", "", Outcome.DENIED),
        ("InvalidClientTokenId", "", Outcome.FAILED),
        ("ExpiredToken", "", Outcome.FAILED),
        ("InternalError", "", Outcome.FAILED),
        ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "", Outcome.MALFORMED),
        ("NeverHeardOf", "", Outcome.UNKNOWN),
        (None, None, Outcome.UNKNOWN),
        (17, {"odd": 1}, Outcome.UNKNOWN),
    ],
)
def test_error_codes(code: object, text: object, expected: Outcome) -> None:
    assert of_error({"Code": code, "Message": text}) is expected


CHANGE = "ChangeMessageVisibility"


def client_error(code: str, status: int, operation: str = CHANGE + "Batch") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}},
        operation,
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (client_error("InternalError", 500), Outcome.UNSURE),
        (client_error("BadGateway", 502), Outcome.UNKNOWN),
        (client_error("GatewayTimeout", 504), Outcome.UNKNOWN),
        (client_error("ServiceUnavailable", 503), Outcome.THROTTLED),
        (client_error("TooManyRequestsException", 429), Outcome.THROTTLED),
        (client_error("AccessDenied", 403), Outcome.DENIED),
        (client_error("QueueDoesNotExist", 400), Outcome.NO_QUEUE),
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
def test_what_a_failed_call_means_for_its_entries(error: Exception, expected: Outcome) -> None:
    assert of_exception(error, CHANGE) is expected


@pytest.mark.parametrize(
    "operation",
    [
        "AssumeRole",
        "AssumeRoleWithWebIdentity",
        "AssumeRoleWithSAML",
        "GetSessionToken",
        "GetRoleCredentials",
        "CreateToken",
        "DeleteMessageBatch",
    ],
)
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("AccessDenied", 403),
        ("QueueDoesNotExist", 400),
        ("ValidationError", 400),
        ("Throttling", 400),
        ("InternalFailure", 500),
        ("NeverHeardOf", 400),
    ],
)
def test_answers_of_other_operations_say_nothing_about_the_messages(
    operation: str, code: str, status: int
) -> None:
    """Nothing was sent: the call that needs credentials renews them first."""
    assert of_exception(client_error(code, status, operation), CHANGE) is Outcome.FAILED


@pytest.mark.parametrize("suffix", ["", "Batch"])
@pytest.mark.parametrize("kind", CallKind)
def test_a_denial_of_the_operation_itself_is_one(kind: CallKind, suffix: str) -> None:
    error = client_error("AccessDenied", 403, kind.value + suffix)

    class Denying:
        def __getattr__(self, name: str) -> object:
            def call(**request: object) -> None:
                raise error

            return call

    assert BotoSqs(Denying()).send(one_entry(kind)) == [Outcome.DENIED]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"Successful": [{"Id": "0"}, {"Id": "1"}]}, [Outcome.DONE, Outcome.DONE]),
        (
            {"Successful": [{"Id": "1"}], "Failed": [{"Id": "0", "Code": "RequestThrottled"}]},
            [Outcome.THROTTLED, Outcome.DONE],
        ),
        ({"Successful": [{"Id": "1"}]}, [Outcome.UNKNOWN, Outcome.DONE]),
        ({"Successful": [{"Id": "7"}, {"Id": "x"}, {}, None, "0"]}, [Outcome.UNKNOWN] * 2),
        ({"Successful": None, "Failed": None}, [Outcome.UNKNOWN] * 2),
        ({}, [Outcome.UNKNOWN] * 2),
        (None, [Outcome.UNKNOWN] * 2),
        ("gibberish", [Outcome.UNKNOWN] * 2),
    ],
)
def test_every_entry_gets_an_outcome_for_any_answer(
    answer: object, expected: list[Outcome]
) -> None:
    assert read_answer(answer, 2) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"VisibilityTimeout": "45"}, QueueAttributes(45, None)),
        (
            {"VisibilityTimeout": "45", "RedrivePolicy": '{"maxReceiveCount": "3"}'},
            QueueAttributes(45, 3),
        ),
        (
            {"VisibilityTimeout": "45", "RedrivePolicy": '{"maxReceiveCount": 3}'},
            QueueAttributes(45, 3),
        ),
        ({}, QueueAttributes(30, None)),
        ({"VisibilityTimeout": "?", "RedrivePolicy": "no json"}, QueueAttributes(30, None)),
    ],
)
def test_queue_attributes(attributes: dict[str, str], expected: QueueAttributes) -> None:
    assert read_attributes(attributes) == expected


class RecordingClient:
    """Stands for a boto3 client: keeps the request, confirms every entry."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, object]]] = []

    def __getattr__(self, name: str) -> object:
        def call(**request: object) -> dict[str, object]:
            self.requests.append((name, request))
            entries = request["Entries"]
            assert isinstance(entries, list)
            return {"Successful": [{"Id": entry["Id"]} for entry in entries]}

        return call


@pytest.mark.parametrize("kind", CallKind)
def test_a_call_becomes_one_batch_request_with_distinct_valid_ids(kind: CallKind) -> None:
    client = RecordingClient()
    lease = Lease(queue_url="q", message_id="m", terms=LeaseTerms.of(30), held_since=0.0)
    entries = tuple(Entry(lease, f"h{n}", Action.EXTEND, 30 + n) for n in range(10))
    outcomes = BotoSqs(client).send(Call(kind, "q", entries, 0.0))
    assert outcomes == [Outcome.DONE] * 10
    ((name, request),) = client.requests
    sent = request["Entries"]
    assert isinstance(sent, list)
    assert request["QueueUrl"] == "q"
    assert len({entry["Id"] for entry in sent}) == 10
    assert [entry["ReceiptHandle"] for entry in sent] == [f"h{n}" for n in range(10)]
    if kind is CallKind.DELETE:
        assert name == "delete_message_batch"
    else:
        assert name == "change_message_visibility_batch"
        assert [entry["VisibilityTimeout"] for entry in sent] == list(range(30, 40))


def test_our_own_faults_do_not_count_as_answers() -> None:
    class Broken:
        def delete_message_batch(self, **request: object) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BotoSqs(Broken()).send(one_entry(CallKind.DELETE))


def test_a_call_without_a_client_was_not_sent_and_its_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = ["no session: the vault is closed"]

    def no_client(queue_url: str) -> RecordingClient:
        if faults:
            raise ConfigurationError(list(faults))
        return RecordingClient()

    sqs = BotoSqs(no_client)
    for _ in range(3):
        assert sqs.send(one_entry(CallKind.DELETE)) == [Outcome.FAILED]
    faults[0] = "no session: the vault is gone"
    assert sqs.send(one_entry(CallKind.DELETE)) == [Outcome.FAILED]
    again = faults.pop()
    sqs.send(one_entry(CallKind.DELETE))
    faults.append(again)
    assert sqs.send(one_entry(CallKind.DELETE)) == [Outcome.FAILED]
    first, second, third = caplog.messages
    assert "no session: the vault is closed; it is tried again" in first
    assert "no session: the vault is gone" in second
    assert third == second


def one_entry(kind: CallKind) -> Call:
    lease = Lease(queue_url="q", message_id="m", terms=LeaseTerms.of(30), held_since=0.0)
    return Call(kind, "q", (Entry(lease, "h", Action.EXTEND, 30),), 0.0)

"""Calls that repeat a prepared request have the requests and the outcomes of boto3's calls."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.session import get_session
from hypothesis import given
from moto import mock_aws

from celery_sqs_heartbeat.leases.calls import CallKind, Outcome
from celery_sqs_heartbeat.sqs import prepared_requests
from celery_sqs_heartbeat.sqs.clients import new_client
from celery_sqs_heartbeat.sqs.prepared_requests import make_call, prepare_calls
from celery_sqs_heartbeat.testing import FakeClock
from tests.fuzz.shapes import FUZZ, answers
from tests.support.answered import (
    CONFIRMED,
    QUEUE,
    AnsweredClient,
    answer,
    call_of,
    config,
    texts,
)

BOTH = [CallKind.CHANGE_VISIBILITY, CallKind.DELETE]
SKEWED = {"__type": "com.amazon.coral.service#RequestTimeTooSkewed", "message": "late"}
DENIED = {"__type": "com.amazonaws.sqs#AccessDeniedException", "Message": "no"}
GONE = {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "gone"}
GONE_CODE = "AWS.SimpleQueueService.NonExistentQueue;Sender"
PARTLY = {
    "Successful": [{"Id": "1"}],
    "Failed": [
        {"Id": "0", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": "gone"}
    ],
}


class Fixed(CredentialProvider):
    """Provides the credentials of a test."""

    METHOD = "fixed"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        return self._credentials


def client_with(credentials: Credentials) -> Any:
    """Return a client that repeats requests, with these credentials."""
    core = get_session()
    core.register_component("credential_provider", CredentialResolver([Fixed(credentials)]))
    session = boto3.Session(botocore_session=core, region_name="x-1")
    client = new_client(config(), QUEUE, 10, lambda: session)
    prepare_calls(client)
    return client


@pytest.mark.parametrize("kind", BOTH)
def test_boto3_makes_the_first_call_and_the_next_repeat_its_request(kind: CallKind) -> None:
    answered = AnsweredClient()
    assert not answered.repeats(call_of(kind))
    assert answered.repeats(call_of(kind))
    assert answered.repeats(call_of(kind, count=10))
    assert answered.made_by_boto3 == 1


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("token", [None, "FwoGZXIvYXdzE//token=="])
def test_a_repeated_request_is_boto3s(kind: CallKind, token: str | None) -> None:
    answered = AnsweredClient(client_with(Credentials("AKIA", "s", token)))
    answered.send(call_of(kind))
    assert answered.repeats(call_of(kind))
    by_boto3, repeated = answered.requests
    assert (repeated.method, repeated.url, repeated.body) == (
        by_boto3.method,
        by_boto3.url,
        by_boto3.body,
    )
    # boto3 counts its retries in two headers.
    retries = {"amz-sdk-invocation-id", "amz-sdk-request"}
    assert texts(repeated).keys() == texts(by_boto3).keys() - retries
    signed = {"x-amz-date", "authorization", *retries}
    assert {name: value for name, value in texts(repeated).items() if name not in signed} == {
        name: value for name, value in texts(by_boto3).items() if name not in signed
    }
    assert texts(repeated)["authorization"] == authorization(repeated, token)


def authorization(request: Any, token: str | None) -> str:
    """Return how botocore signs a request."""
    headers = texts(request)
    signed = {
        name: headers[name]
        for name in ("content-type", "x-amz-target", "x-amzn-query-mode", "x-amz-date")
        if name in headers
    }
    if token:
        signed["x-amz-security-token"] = token
    again = AWSRequest("POST", request.url, signed, request.body)
    again.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials("AKIA", "s", token), "sqs", "x-1")
    text = auth.string_to_sign(again, auth.canonical_request(again))
    names = auth.signed_headers(auth.headers_to_sign(again))
    return (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(again)}, SignedHeaders={names}, "
        f"Signature={auth.signature(text, again)}"
    )


ANSWERS = [
    answer(CONFIRMED),
    answer(PARTLY),
    answer({"Successful": [], "Failed": []}),
    answer({"Successful": [{"Id": "0"}], "Failed": None}),
    answer({"Successful": None}),
    answer({"Successful": [{"Id": 0}, None]}),
    answer({"Successful": {"Id": "0"}}),
    answer({}),
    answer([]),
    answer(None),
    answer(b""),
    answer(b"{"),
    answer(b'{"Successful": [{"Id": "0"}'),
    answer('{"Successful": [{"Id": "0"}]}'.encode("utf-16")),
    answer(b"[" * 100_000),
    answer(b"\xff\xfe"),
    answer(DENIED, 403),
    answer(DENIED, 400),
    answer(GONE, 400),
    answer(GONE, 400, {"x-amzn-query-error": GONE_CODE}),
    answer({}, 400, {"x-amzn-query-error": "AWS.SimpleQueueService.RequestThrottled;Sender"}),
    answer({}, 400, {"x-amzn-errortype": "ReceiptHandleIsInvalid:http://x"}),
    answer(SKEWED, 403),
    answer({"code": "OverLimit", "message": ["odd"]}, 403),
    answer(b"<html>Bad Gateway</html>", 502),
    answer(b"<html>Forbidden</html>", 403),
    answer(b"", 503),
    answer(b"", 500),
    answer({"__type": "InternalFailure"}, 500),
    answer(b"slow down", 429),
    answer(b"", 301, {"location": "https://elsewhere/"}),
    answer(b"", 204),
    answer(CONFIRMED, 300),
]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("given_answer", ANSWERS)
def test_an_answer_has_the_same_outcomes_as_with_boto3(given_answer: Any, kind: CallKind) -> None:
    assert outcomes(given_answer, kind) == outcomes(given_answer, kind, by_boto3=True)


def outcomes(given_answer: Any, kind: CallKind = CallKind.DELETE, *, by_boto3: bool = False) -> Any:
    """Return the outcomes of a second call, or the type of the error that it raises."""
    answered = AnsweredClient(by_boto3=by_boto3)
    answered.send(call_of(kind))
    answered.answer = given_answer
    made = answered.made_by_boto3
    result = send_or_raise(answered, kind)
    assert answered.made_by_boto3 - made == by_boto3
    return result


REPEATING, BY_BOTO3 = AnsweredClient(), AnsweredClient(by_boto3=True)


@FUZZ
@given(body=answers)
def test_an_answer_of_any_shape_has_the_same_outcomes_as_with_boto3(body: Any) -> None:
    found = []
    for answered in (REPEATING, BY_BOTO3):
        answered.answer = answer()
        answered.send()
        answered.answer = answer(body)
        found.append(send_or_raise(answered))
    assert found[0] == found[1]


def send_or_raise(answered: AnsweredClient, kind: CallKind = CallKind.DELETE) -> Any:
    try:
        return answered.send(call_of(kind))
    except Exception as error:
        return type(error)


def test_a_repeated_request_that_fails_is_followed_by_one_of_boto3() -> None:
    answered = AnsweredClient()
    answered.send()
    answered.answer = answer(SKEWED, 403)
    assert answered.repeats()
    assert not answered.repeats()
    answered.answer = answer()
    assert not answered.repeats()
    assert answered.repeats()


def test_entries_that_sqs_refuses_are_no_failure_of_the_call() -> None:
    answered = AnsweredClient()
    answered.send()
    answered.answer = answer(PARTLY)
    assert answered.send() == [Outcome.LOST, Outcome.DONE]
    assert answered.repeats()


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://x"),
        ConnectTimeoutError(endpoint_url="http://x"),
        ReadTimeoutError(endpoint_url="http://x"),
        ConnectionClosedError(endpoint_url="http://x"),
        ConnectionResetError(),
        NoCredentialsError(),
    ],
)
def test_an_error_of_the_network_has_the_same_outcomes_as_with_boto3(error: Exception) -> None:
    def fail(request: Any) -> None:
        raise error

    assert outcomes(fail) == outcomes(fail, by_boto3=True)


def test_a_repeated_request_of_a_call_that_was_given_up_is_never_sent() -> None:
    answered = AnsweredClient()
    answered.send()
    asked: list[int] = []

    def may_send() -> bool:
        asked.append(len(answered.requests))
        return False

    answered.answer = lambda request: pytest.fail("it was sent")
    answered.client.meta.events.unregister("before-send", answered._answer)
    made = answered.made_by_boto3
    assert answered.sqs.send(call_of(), may_send) == [Outcome.UNKNOWN] * 2
    assert asked == [1]
    assert answered.made_by_boto3 == made


def test_each_operation_has_its_own_request() -> None:
    answered = AnsweredClient()
    for call in (call_of(), call_of(CallKind.DELETE)):
        assert not answered.repeats(call)
        assert answered.repeats(call)
    assert answered.repeats(call_of(queue=f"{QUEUE}-2"))
    urls = [json.loads(request.body)["QueueUrl"] for request in answered.requests]
    assert urls == [QUEUE] * 4 + [f"{QUEUE}-2"]


@pytest.mark.parametrize("token", ["token-2", None])
def test_a_repeated_request_is_signed_with_renewed_credentials(token: str | None) -> None:
    credentials = Credentials("AKIAFIRST", "s", "token-1")
    answered = AnsweredClient(client_with(credentials))
    answered.send()
    credentials.access_key, credentials.token = "AKIASECOND", token
    assert answered.repeats()
    headers = texts(answered.requests[-1])
    assert headers.get("x-amz-security-token") == token
    assert "Credential=AKIASECOND/" in headers["authorization"]


def test_a_poll_like_the_last_is_sent_with_its_signature_for_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = FakeClock(1_000.0)
    monkeypatch.setattr(prepared_requests.clock, "now", now)
    credentials = Credentials("AKIAFIRST", "s", "token-1")
    answered = AnsweredClient(client_with(credentials))

    def poll() -> bool:
        prepared_requests.make_call(answered.client, "ReceiveMessage", {"QueueUrl": QUEUE})
        return "Credential=AKIASECOND/" in texts(answered.requests[-1])["authorization"]

    assert [poll(), poll()] == [False, False]
    credentials.access_key = "AKIASECOND"
    signed = []
    for seconds in (4.9, 0.2):
        now.advance(seconds)
        signed.append(poll())
    assert signed == [False, True]


def test_what_a_handler_changes_about_a_request_is_not_sent_again() -> None:
    def count(request: Any, **_: Any) -> None:
        request.headers["seen"] = request.headers.get("seen", "") + "+"

    answered = AnsweredClient()
    answered.client.meta.events.register_first("before-send.sqs", count)
    answered.send()
    assert all(answered.repeats() for _ in range(2))
    assert [texts(request)["seen"] for request in answered.requests] == ["+"] * 3


def test_handlers_see_and_change_a_repeated_request() -> None:
    def add_header(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-1-1-01"

    answered = AnsweredClient()
    answered.client.meta.events.register("before-sign", add_header)
    answered.send()
    assert answered.repeats()
    headers = texts(answered.requests[-1])
    assert headers["traceparent"] == "00-1-1-01"
    assert "traceparent" in headers["authorization"]


def test_a_repeated_request_is_not_signed_where_boto3_would_not_sign_it() -> None:
    answered = AnsweredClient()
    answered.client.meta.events.register("choose-signer", lambda **_: UNSIGNED)
    answered.send()
    assert answered.repeats()
    assert all("authorization" not in texts(request) for request in answered.requests)


def test_boto3_makes_every_call_of_clients_that_others_may_have_changed() -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="x-1")
    for answered in (
        AnsweredClient(new_client(config(), QUEUE, 10, lambda: session)),
        AnsweredClient(session.client("sqs")),
    ):
        answered.send()
        assert not answered.repeats()


def test_boto3_makes_every_call_that_is_instrumented(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    answered = AnsweredClient()
    original = type(answered.client)._make_api_call

    def traced(self: Any, operation: str, params: Any) -> Any:
        seen.append(operation)
        return original(self, operation, params)

    monkeypatch.setattr(type(answered.client), "_make_api_call", traced)
    answered.send()
    answered.send()
    assert len(seen) == 2


def test_boto3_makes_every_call_if_it_has_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTOCORE_EXPERIMENTAL__PLUGINS", "mine=json")
    answered = AnsweredClient()
    answered.send()
    assert not answered.repeats()


def test_motos_mocks_see_repeated_requests() -> None:
    with mock_aws():
        client = new_client(config(region="us-east-1"), QUEUE, 10)
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        answered = AnsweredClient(client)
        answered.client.meta.events.unregister("before-send", answered._answer)
        for _ in range(3):
            client.send_message(QueueUrl=url, MessageBody="x")
            (message,) = client.receive_message(QueueUrl=url)["Messages"]
            call = call_of(CallKind.DELETE, url, 1)
            object.__setattr__(call.entries[0], "receipt_handle", message["ReceiptHandle"])
            made = answered.made_by_boto3
            assert answered.send(call) == [Outcome.DONE]
    assert answered.made_by_boto3 == made


def test_an_answer_is_read_by_the_operations_model() -> None:
    attribute = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    with mock_aws():
        client = new_client(config(region="us-east-1"), QUEUE, 10)
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        params = {"QueueUrl": url, "MessageAttributeNames": ["All"], "WaitTimeSeconds": 0}
        assert "Messages" not in make_call(client, "ReceiveMessage", params)
        client.send_message(QueueUrl=url, MessageBody="é", MessageAttributes={"a": attribute})
        client.meta.events.register("before-call", lambda **_: pytest.fail("it is not repeated"))
        (message,) = make_call(client, "ReceiveMessage", params)["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == ("é", {"a": attribute})

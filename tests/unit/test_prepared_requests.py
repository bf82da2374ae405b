"""A call that repeats a prepared request has the request and the outcomes of boto3's own calls."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.session import get_session
from hypothesis import given
from moto import mock_aws

from celery_sqs_heartbeat.leases.events import CallKind, Outcome
from celery_sqs_heartbeat.sqs import sending
from celery_sqs_heartbeat.sqs.clients import new_client
from celery_sqs_heartbeat.sqs.sending import make_call, prepare_calls
from celery_sqs_heartbeat.testing import FakeClock
from tests.fuzz.shapes import FUZZ, answers
from tests.support.answered import CONFIRMED, QUEUE, AnsweredClient, answer, call_of, config, texts

DENIED = {"__type": "com.amazonaws.sqs#AccessDeniedException", "Message": "no"}
GONE = {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "gone"}
GONE_CODE = "AWS.SimpleQueueService.NonExistentQueue;Sender"
LOST = {"Id": "0", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": "gone"}
PARTLY = {"Successful": [{"Id": "1"}], "Failed": [LOST]}


class Fixed(CredentialProvider):
    """Provides the credentials of a test."""

    METHOD = "fixed"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        return self._credentials


def answered_with(credentials: Credentials) -> AnsweredClient:
    """Return a client that repeats requests, with these credentials."""
    core = get_session()
    core.register_component("credential_provider", CredentialResolver([Fixed(credentials)]))
    session = boto3.Session(botocore_session=core, region_name="x-1")
    client = new_client(config(), QUEUE, 10, lambda: session)
    prepare_calls(client)
    return AnsweredClient(client)


@pytest.mark.parametrize("kind", CallKind)
@pytest.mark.parametrize("token", [None, "FwoGZXIvYXdzE//token=="])
def test_a_repeated_request_is_boto3s(kind: CallKind, token: str | None) -> None:
    answered = answered_with(Credentials("AKIA", "s", token))
    answered.send(call_of(kind))
    assert answered.repeats(call_of(kind))
    by_boto3, repeated = answered.requests
    assert [repeated.method, repeated.url, repeated.body] == [
        by_boto3.method,
        by_boto3.url,
        by_boto3.body,
    ]
    # boto3 counts its retries in two headers.
    retries = {"amz-sdk-invocation-id", "amz-sdk-request"}
    assert texts(repeated).keys() == texts(by_boto3).keys() - retries
    signed = {"x-amz-date", "authorization"}
    for name in texts(repeated).keys() - signed:
        assert texts(repeated)[name] == texts(by_boto3)[name]
    # botocore signs the same headers, with another time.
    by_boto3, repeated = (texts(each)["authorization"] for each in (by_boto3, repeated))
    assert repeated.partition("Signature=")[0] == by_boto3.partition("Signature=")[0]
    assert len(repeated.partition("Signature=")[2]) == 64


def raising(error: Exception) -> Any:
    def fail(request: Any) -> None:
        raise error

    return fail


ANSWERS = [
    answer(CONFIRMED),
    answer(PARTLY),
    answer(b""),
    answer(b'{"Successful": [{"Id": "0"}'),
    answer('{"Successful": [{"Id": "0"}]}'.encode("utf-16")),
    answer(b"[" * 100_000),
    answer(DENIED, 403),
    answer(GONE, 400),
    answer(GONE, 400, {"x-amzn-query-error": GONE_CODE}),
    answer({}, 400, {"x-amzn-errortype": "ReceiptHandleIsInvalid:http://x"}),
    answer({"code": "OverLimit", "message": ["odd"]}, 403),
    answer(b"<html>Bad Gateway</html>", 502),
    answer(b"<html>Forbidden</html>", 403),
    answer(b"", 503),
    answer({"__type": "InternalFailure"}, 500),
    answer(b"slow down", 429),
    answer(b"", 301, {"location": "https://elsewhere/"}),
    answer(CONFIRMED, 300),
    raising(EndpointConnectionError(endpoint_url="http://x")),
    raising(ReadTimeoutError(endpoint_url="http://x")),
    raising(ConnectionClosedError(endpoint_url="http://x")),
    raising(NoCredentialsError()),
]
REPEATING, BY_BOTO3 = AnsweredClient(), AnsweredClient(by_boto3=True)


def outcomes(answered: AnsweredClient, given_answer: Any, kind: CallKind) -> Any:
    """Return the outcomes of a second call, or the type of the error that it raises."""
    answered.answer = answer()
    answered.send(call_of(kind))
    answered.answer = given_answer
    made = answered.made_by_boto3
    try:
        return answered.send(call_of(kind))
    except Exception as error:
        return type(error)
    finally:
        assert answered.made_by_boto3 - made == (answered is BY_BOTO3)


@pytest.mark.parametrize("kind", CallKind)
@pytest.mark.parametrize("given_answer", ANSWERS)
def test_an_answer_has_the_same_outcomes_as_with_boto3(given_answer: Any, kind: CallKind) -> None:
    by_boto3 = outcomes(BY_BOTO3, given_answer, kind)
    assert outcomes(REPEATING, given_answer, kind) == by_boto3


@FUZZ
@given(body=answers)
def test_an_answer_of_any_shape_has_the_same_outcomes_as_with_boto3(body: Any) -> None:
    by_boto3 = outcomes(BY_BOTO3, answer(body), CallKind.DELETE)
    assert outcomes(REPEATING, answer(body), CallKind.DELETE) == by_boto3


def test_a_repeated_request_that_fails_is_followed_by_one_of_boto3() -> None:
    answered = AnsweredClient()
    answered.send()
    # That SQS refuses entries is no failure of the call.
    answered.answer = answer(PARTLY)
    assert answered.send() == [Outcome.LOST, Outcome.DONE]
    answered.answer = answer(DENIED, 403)
    assert [answered.repeats(), answered.repeats()] == [True, False]
    answered.answer = answer()
    assert [answered.repeats(), answered.repeats()] == [False, True]


def test_a_repeated_request_of_a_call_that_was_given_up_is_never_sent() -> None:
    answered = AnsweredClient()
    answered.send()
    made = answered.made_by_boto3
    # The client's own handler comes first.
    answered.client.meta.events.unregister("before-send", answered._answer)
    answered.client.meta.events.register_last("before-send", lambda **_: pytest.fail("sent"))
    assert answered.sqs.send(call_of(), lambda: False) == [Outcome.UNKNOWN] * 2
    assert answered.made_by_boto3 == made


@pytest.mark.parametrize("by_boto3", [False, True])
def test_connections_are_new_every_ten_seconds_and_after_a_call_that_failed(
    monkeypatch: pytest.MonkeyPatch, by_boto3: bool
) -> None:
    now, closed = FakeClock(1_000.0), list[float]()
    monkeypatch.setattr(sending.clock, "now", now)
    answered = AnsweredClient(by_boto3=by_boto3)
    answered.client.close = lambda: closed.append(now())
    for _ in range(4):
        answered.send()
        now.advance(sending.MAX_AGE_SECONDS / 3)
    assert closed == pytest.approx([1_000.0, 1_010.0])
    answered.answer = raising(ConnectionClosedError(endpoint_url="http://x"))
    assert answered.send() == [Outcome.UNKNOWN] * 2
    assert closed[2:]


@pytest.mark.parametrize("token", ["token-2", None])
def test_a_repeated_request_is_signed_with_renewed_credentials(token: str | None) -> None:
    credentials = Credentials("AKIAFIRST", "s", "token-1")
    answered = answered_with(credentials)
    answered.send()
    credentials.access_key, credentials.token = "AKIASECOND", token
    assert answered.repeats()
    headers = texts(answered.requests[-1])
    assert headers.get("x-amz-security-token") == token
    assert "Credential=AKIASECOND/" in headers["authorization"]


def test_handlers_see_and_change_each_repeated_request_but_not_the_next() -> None:
    def trace(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-1-1-01"

    def count(request: Any, **_: Any) -> None:
        request.headers["seen"] = request.headers.get("seen", "") + "+"

    answered = AnsweredClient()
    answered.client.meta.events.register("before-sign", trace)
    answered.client.meta.events.register_first("before-send.sqs", count)
    answered.send()
    assert all(answered.repeats() for _ in range(2))
    for _ in range(3):
        make_call(answered.client, "ReceiveMessage", {"QueueUrl": QUEUE})
    for request in answered.requests:
        assert texts(request)["seen"] == "+"
        assert "traceparent" in texts(request)["authorization"]


def test_a_repeated_request_is_not_signed_where_boto3_would_not_sign_it() -> None:
    answered = AnsweredClient()
    answered.client.meta.events.register("choose-signer", lambda **_: UNSIGNED)
    answered.send()
    assert answered.repeats()
    assert all("authorization" not in texts(request) for request in answered.requests)


def test_boto3_makes_every_call_that_others_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="x-1")
    clients = [
        AnsweredClient(new_client(config(), QUEUE, 10, lambda: session)),
        AnsweredClient(session.client("sqs")),
    ]
    with monkeypatch.context() as patch:
        patch.setenv("BOTOCORE_EXPERIMENTAL__PLUGINS", "mine=json")
        clients.append(AnsweredClient())
    for answered in clients:
        answered.send()
        assert not answered.repeats()
    instrumented = AnsweredClient()
    original = type(instrumented.client)._make_api_call
    monkeypatch.setattr(
        type(instrumented.client), "_make_api_call", lambda *call: original(*call), raising=True
    )
    instrumented.send()
    assert not instrumented.repeats()


def test_a_repeated_receive_is_read_by_the_operations_model_and_seen_by_motos_mocks() -> None:
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

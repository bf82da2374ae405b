"""How SQS is asked about queues, and what its answers mean, without repeating their texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
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

from celery_sqs_heartbeat.cli.broker import Broker
from celery_sqs_heartbeat.cli.queues import (
    Answer,
    QueueFacts,
    QueueInspector,
    Tried,
    of_error,
    of_payload,
    whether_permitted,
)
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.faults import Answer as Raw
from tests.support.faults import Body, Forward, deny, fail, reset, throttle
from tests.support.proxy import FaultProxy
from tests.unit.cli.conftest import app_at

SECRET = "wJalrXUtnFEMI"
ENDPOINT = "https://sqs.example"
FOUND, LISTED, ATTRIBUTES = Tried.ALLOWED, "sqs:ListQueues", "sqs:GetQueueAttributes"
RECEIVE, CHANGE, DELETE = (
    f"sqs:{name}" for name in ("ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage")
)
ALL = [LISTED, ATTRIBUTES, RECEIVE, CHANGE, DELETE]


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
        (refusal("Forbidden", 403, "GetRole"), Tried.CREDENTIALS, "GetRole: Forbidden"),
        (refusal("RequestThrottled"), Tried.BUSY, "RequestThrottled"),
        (refusal("InternalError", 500), Tried.BUSY, "InternalError"),
        (refusal("Whatever", 503), Tried.BUSY, "Whatever"),
        (refusal("InvalidAttributeName"), Tried.REFUSED, "InvalidAttributeName"),
        (refusal(""), Tried.REFUSED, "unknown"),
        (NoCredentialsError(), Tried.CREDENTIALS, "NoCredentialsError"),
        (
            EndpointConnectionError(endpoint_url=SECRET),
            Tried.UNREACHABLE,
            "EndpointConnectionError",
        ),
        (ConnectTimeoutError(endpoint_url="x"), Tried.UNREACHABLE, "ConnectTimeoutError"),
        (BotoCoreError(), Tried.UNREACHABLE, "BotoCoreError"),
        (OSError(SECRET), Tried.UNREACHABLE, "OSError"),
        (ParamValidationError(report=SECRET), Tried.REFUSED, "ParamValidationError"),
        (ValueError(f"Invalid endpoint: {SECRET}"), Tried.REFUSED, "ValueError"),
    ],
)
def test_an_error_becomes_an_answer(error: Exception, tried: Tried, reason: str) -> None:
    answer = of_error(error, "GetQueueAttributes", ENDPOINT, 0.0, 0.0)
    where = f" at {ENDPOINT}" if tried is Tried.UNREACHABLE else ""
    assert answer == Answer(tried=tried, reason=f"{reason}{where}")
    assert SECRET not in repr(answer)


@pytest.mark.parametrize(
    ("answer", "tried"),
    [
        (Answer(tried=Tried.REFUSED, reason="InvalidParameterValue"), Tried.ALLOWED),
        (Answer(tried=Tried.REFUSED, reason="ReadCountOutOfRange"), Tried.ALLOWED),
        (Answer(tried=Tried.REFUSED, reason="InvalidAddress"), Tried.REFUSED),
        (Answer(tried=Tried.DENIED, reason="AccessDenied"), Tried.DENIED),
        (Answer(tried=FOUND, payload={}), FOUND),
        (Answer(tried=FOUND, payload={"Failed": [{"Code": "ReceiptHandleIsInvalid"}]}), FOUND),
        (Answer(tried=FOUND, payload={"Failed": [{"Code": "AccessDenied"}]}), Tried.DENIED),
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
    error = refusal("SignatureDoesNotMatch", 403)
    error.response["ResponseMetadata"]["HTTPHeaders"] = headers
    assert of_error(error, "GetQueueAttributes", ENDPOINT, 99.0, 101.0).skew == skew


@pytest.fixture
def proxy(server: SimulatedServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as running:
        yield running


def inspector(proxy: FaultProxy, **options: Any) -> QueueInspector:
    app = app_at(proxy.broker_url, options=options)
    return QueueInspector(Broker.of_app(app), clock=lambda: 1_700_000_000.0)


def tried(queue: QueueFacts) -> dict[str, Tried]:
    return {action: answer.tried for action, answer in queue.tries.items()}


def test_every_permission_is_tried_without_an_effect(
    proxy: FaultProxy, server: SimulatedServer
) -> None:
    client = server.client()
    url = client.get_queue_url(QueueName="work")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="precious")
    queue = inspector(proxy).inspect("work")
    assert tried(queue) == dict.fromkeys(ALL, Tried.ALLOWED)
    assert queue.own_timeout == 30
    (receive,) = proxy.calls("ReceiveMessage")
    assert receive.body["MaxNumberOfMessages"] == 0
    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@pytest.mark.parametrize(
    ("operation", "denied", "is_found"),
    [
        ("ListQueues", [LISTED], True),
        ("ReceiveMessage", [RECEIVE], True),
        ("ChangeMessageVisibilityBatch", [CHANGE], True),
        ("DeleteMessageBatch", [DELETE], True),
        ("GetQueueAttributes", [ATTRIBUTES], False),
        ("*", ALL, False),
    ],
)
def test_a_missing_permission_is_named_and_the_rest_is_still_read(
    proxy: FaultProxy, operation: str, denied: list[str], is_found: bool
) -> None:
    proxy.rule(operation, deny())
    queue = inspector(proxy).inspect("work")
    assert queue.actions(Tried.DENIED) == denied
    assert bool(queue.attributes) is is_found


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (throttle(), (Tried.BUSY, "RequestThrottled")),
        (fail(500), (Tried.BUSY, "InternalError")),
        (fail(403, "SignatureDoesNotMatch"), (Tried.CREDENTIALS, "SignatureDoesNotMatch")),
        (fail(400, "InvalidSecurityPolicy"), (Tried.REFUSED, "InvalidSecurityPolicy")),
    ],
)
def test_why_sqs_did_not_answer(proxy: FaultProxy, effect: Any, reason: tuple[Tried, str]) -> None:
    proxy.rule("*", effect)
    queue = inspector(proxy).inspect("work")
    assert [(each.tried, each.reason) for each in queue.tries.values()] == [reason]
    assert not queue.is_answered


def test_an_endpoint_that_is_down_is_tried_once(proxy: FaultProxy) -> None:
    proxy.rule("*", reset())
    urls = {name: {"url": f"{proxy.url}/1/{name}"} for name in ("a", "b")}
    asking = inspector(proxy, predefined_queues=urls)
    assert [asking.inspect(name).found.tried for name in urls] == [Tried.UNREACHABLE] * 2
    assert len(proxy.calls()) == 1


def test_predefined_queues_are_taken_by_their_urls(
    proxy: FaultProxy, server: SimulatedServer
) -> None:
    url = server.client().get_queue_url(QueueName="work")["QueueUrl"]
    urls = {"here": {"url": url}, "gone": {"url": url.replace("work", "gone")}}
    asking = inspector(proxy, predefined_queues=urls)
    found = {name: asking.look(name) for name in ("here", "gone", "unnamed")}
    assert {name: (each.found.tried, each.url is None) for name, each in found.items()} == {
        "here": (Tried.ALLOWED, False),
        "gone": (Tried.NO_QUEUE, False),
        "unnamed": (Tried.NO_QUEUE, True),
    }
    assert proxy.calls("ListQueues") == []


def test_a_queue_has_its_prefix(proxy: FaultProxy) -> None:
    queue = inspector(proxy, queue_name_prefix="prod-").look("work")
    assert (queue.name, queue.sqs_name) == ("work", "prod-work")
    assert (queue.url or "").endswith("/prod-work")


@pytest.mark.parametrize(("name", "there"), [("a.fifo", FOUND), ("b.fifo", Tried.NO_QUEUE)])
def test_the_dead_letter_queue_of_a_fifo_queue_is_looked_up(
    proxy: FaultProxy, name: str, there: Tried
) -> None:
    queue = inspector(proxy).look(name)
    assert queue.dead_letters is not None
    assert queue.dead_letters.tried is there


def test_each_answer_shows_how_far_the_clock_is_ahead(proxy: FaultProxy) -> None:
    def dated(body: Body, forward: Forward) -> Raw:
        answer = forward(body)
        date = formatdate(1_700_000_000 - 60)
        return replace(answer, headers={**answer.headers, "Date": date})

    proxy.rule("*", dated)
    queue = inspector(proxy).inspect("work")
    assert [each.skew for each in queue.tries.values()] == [60.0] * 5

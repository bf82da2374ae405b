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

from celery_sqs_heartbeat.cli.app import Broker
from celery_sqs_heartbeat.cli.queues import (
    Answer,
    QueueFacts,
    QueueInspector,
    Tried,
    of_error,
    whether_permitted,
)
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.faults import Answer as Raw
from tests.support.faults import Body, Forward, deny, reset
from tests.support.proxy import FaultProxy
from tests.unit.cli.conftest import app_at

SECRET = "wJalrXUtnFEMI"
NOW = 1_700_000_000.0
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


#: What an error means, and its reason if that is not its name or code.
ERRORS: list[tuple[Exception, Tried, str]] = [
    (refusal("AccessDenied", 403), Tried.DENIED, ""),
    (refusal("AccessDeniedException", 400), Tried.DENIED, ""),
    (refusal("AWS.SimpleQueueService.NonExistentQueue"), Tried.NO_QUEUE, "NonExistentQueue"),
    (refusal("com.amazonaws.sqs#QueueDoesNotExist"), Tried.NO_QUEUE, "QueueDoesNotExist"),
    (refusal("SignatureDoesNotMatch", 403), Tried.CREDENTIALS, ""),
    (refusal("InvalidClientTokenId", 403), Tried.CREDENTIALS, ""),
    (refusal("ExpiredToken", 403), Tried.CREDENTIALS, ""),
    (refusal("IncompleteSignature"), Tried.CREDENTIALS, ""),
    (refusal("AccessDenied", 403, "AssumeRole"), Tried.CREDENTIALS, "AssumeRole: AccessDenied"),
    (refusal("Forbidden", 403, "GetRole"), Tried.CREDENTIALS, "GetRole: Forbidden"),
    (refusal("RequestThrottled"), Tried.BUSY, ""),
    (refusal("InternalError", 500), Tried.BUSY, ""),
    (refusal("InternalError"), Tried.BUSY, ""),
    (refusal("Whatever", 503), Tried.BUSY, ""),
    (refusal("InvalidAttributeName"), Tried.REFUSED, ""),
    (refusal(""), Tried.REFUSED, "unknown"),
    (NoCredentialsError(), Tried.CREDENTIALS, ""),
    (EndpointConnectionError(endpoint_url=SECRET), Tried.UNREACHABLE, ""),
    (ConnectTimeoutError(endpoint_url="x"), Tried.UNREACHABLE, ""),
    (BotoCoreError(), Tried.UNREACHABLE, ""),
    (OSError(SECRET), Tried.UNREACHABLE, ""),
    (ParamValidationError(report=SECRET), Tried.REFUSED, ""),
    (ValueError(f"Invalid endpoint: {SECRET}"), Tried.REFUSED, ""),
]


@pytest.mark.parametrize(("error", "tried", "reason"), ERRORS)
def test_an_error_becomes_an_answer(error: Exception, tried: Tried, reason: str) -> None:
    answer = of_error(error, "GetQueueAttributes", ENDPOINT)
    is_refusal = isinstance(error, ClientError)
    reason = reason or (error.response["Error"]["Code"] if is_refusal else type(error).__name__)
    where = f" at {ENDPOINT}" if tried is Tried.UNREACHABLE else ""
    assert answer == Answer(tried=tried, reason=f"{reason}{where}")
    assert SECRET not in repr(answer)


@pytest.mark.parametrize(
    ("answer", "tried"),
    [
        (Answer(tried=Tried.REFUSED, reason="InvalidParameterValue"), FOUND),
        (Answer(tried=Tried.REFUSED, reason="ReadCountOutOfRange"), FOUND),
        (Answer(tried=Tried.REFUSED, reason="InvalidAddress"), Tried.REFUSED),
        (Answer(tried=Tried.DENIED, reason="AccessDenied"), Tried.DENIED),
        (Answer(tried=FOUND, payload={}), FOUND),
        (Answer(tried=FOUND, payload={"Failed": [{"Code": "ReceiptHandleIsInvalid"}]}), FOUND),
        (Answer(tried=FOUND, payload={"Failed": [{"Code": "AccessDenied"}]}), Tried.DENIED),
    ],
)
def test_a_call_that_cant_succeed_shows_its_permission(answer: Answer, tried: Tried) -> None:
    assert whether_permitted(answer).tried is tried


@pytest.fixture
def proxy(server: SimulatedServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as running:
        yield running


def inspector(proxy: FaultProxy, **options: Any) -> QueueInspector:
    app = app_at(proxy.broker_url, options=options)
    return QueueInspector(Broker(app), clock=lambda: NOW)


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


def test_an_endpoint_that_is_down_is_tried_once(proxy: FaultProxy) -> None:
    proxy.rule("*", reset())
    urls = {name: {"url": f"{proxy.url}/1/{name}"} for name in ("a", "b")}
    asking = inspector(proxy, predefined_queues=urls)
    assert [asking.inspect(name).found.tried for name in urls] == [Tried.UNREACHABLE] * 2
    assert len(proxy.calls()) == 1


def test_predefined_queues_are_taken_by_their_urls_and_others_by_prefix_and_name(
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
    prefixed = inspector(proxy, queue_name_prefix="prod-").look("work")
    assert (prefixed.name, prefixed.sqs_name) == ("work", "prod-work")
    assert (prefixed.url or "").endswith("/prod-work")


@pytest.mark.parametrize(("name", "there"), [("a.fifo", FOUND), ("b.fifo", Tried.NO_QUEUE)])
def test_the_dead_letter_queue_of_a_fifo_queue_is_looked_up(
    proxy: FaultProxy, name: str, there: Tried
) -> None:
    queue = inspector(proxy).look(name)
    assert queue.dead_letters is not None
    assert queue.dead_letters.tried is there


@pytest.mark.parametrize(
    ("date", "skew"), [(formatdate(NOW - 60), 60.0), ("yesterday", None), (None, None)]
)
def test_each_answer_shows_how_far_the_clock_is_ahead(
    proxy: FaultProxy, date: str | None, skew: float | None
) -> None:
    def dated(body: Body, forward: Forward) -> Raw:
        answer = forward(body)
        headers = {name: value for name, value in answer.headers.items() if name != "Date"}
        return replace(answer, headers={**headers, **({"Date": date} if date else {})})

    proxy.rule("*", dated)
    queue = inspector(proxy).inspect("work")
    assert [each.skew for each in queue.tries.values()] == [skew] * 5

"""The simulated SQS over HTTP: its answers to calls that it can't execute, and its time."""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.unit.simulating import code_of, create


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer() as running:
        yield running


@pytest.fixture
def connection(server: SimulatedServer) -> Iterator[http.client.HTTPConnection]:
    """A single connection that is not reopened."""
    opened = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    opened.auto_open = False
    opened.connect()
    yield opened
    opened.close()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, target: str = ""
) -> tuple[int, dict[str, Any]]:
    connection.request(method, path, b"{}", {"X-Amz-Target": target})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def date_of(response: Any) -> float:
    """Return the server's time in an answer, in whole seconds."""
    return parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()


@pytest.mark.parametrize("token", ["zz", "-1", "1.5", "٣", "1" * 10, " 1"])
def test_a_token_that_sqs_never_made_is_refused(server: SimulatedServer, token: str) -> None:
    client = server.client()
    create(client)
    for sqs in (client, server.sqs):
        code = code_of(sqs.list_queues, MaxResults=1, NextToken=token)
        assert code == "InvalidParameterValue"


def test_an_unforeseen_error_is_answered_and_logged_in_one_line(
    server: SimulatedServer,
    connection: http.client.HTTPConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*ignored: Any) -> Any:
        raise LookupError("unforeseen\nand long")

    with monkeypatch.context() as broken:
        broken.setattr(server.sqs, "call", fail)
        client = server.client(retries={"total_max_attempts": 1})
        with pytest.raises(ClientError) as failed:
            client.list_queues()
        assert failed.value.response["Error"]["Code"] == "InternalError"
        assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        line = record.getMessage()
        assert line.startswith(
            "sqs-heartbeat: the simulated SQS failed on POST / AmazonSQS.ListQueues: LookupError: "
        )
        assert "\n" not in line
        assert "test_simulated_http.py:" in line
        assert record.exc_info is None
        status, answer = ask(connection, "POST", "/", "AmazonSQS.ListQueues")
        assert (status, answer["__type"]) == (500, "com.amazonaws.sqs#InternalError")
    # On the same connection.
    assert ask(connection, "POST", "/", "AmazonSQS.ListQueues") == (200, {})
    assert capfd.readouterr().err == ""


def test_an_answer_that_is_not_json_is_an_unforeseen_error_too(
    server: SimulatedServer,
    connection: http.client.HTTPConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server.sqs, "call", lambda *ignored: {"QueueUrls": [object()]})
    status, _ = ask(connection, "POST", "/", "AmazonSQS.ListQueues")
    assert status == 500


def test_an_unforeseen_error_of_the_admin_endpoint_is_answered(
    server: SimulatedServer,
    connection: http.client.HTTPConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("celery_sqs_heartbeat.testing.admin.as_plain", lambda faults: 1 / 0)
    status, answer = ask(connection, "GET", "/_faults")
    assert (status, answer["message"]) == (500, "We encountered an internal error.")


@pytest.mark.parametrize(
    ("target", "type_", "says"),
    [
        (
            "AmazonSQS.StartMessageMoveTask",
            "UnsupportedOperation",
            'StartMessageMoveTask is not modelled; see docs/testing.md, "Not modelled"',
        ),
        ("AmazonSQS.TagQueue", "UnsupportedOperation", "TagQueue is not modelled"),
        ("AmazonSQS.Fly", "UnknownOperationException", "SQS has no operation 'Fly'; use one of "),
        ("AmazonSNS.Publish", "UnknownOperationException", "not 'AmazonSNS.Publish'"),
        ("", "UnknownOperationException", "use boto3 1.34 or later, which speaks this protocol"),
    ],
)
def test_an_impossible_call_gets_an_error_with_the_reason(
    connection: http.client.HTTPConnection, target: str, type_: str, says: str
) -> None:
    status, answer = ask(connection, "POST", "/", target)
    assert (status, answer["__type"]) == (400, f"com.amazonaws.sqs#{type_}")
    assert says in answer["message"]


def test_an_answer_has_the_time_of_sqs(server: SimulatedServer) -> None:
    client = server.client()
    before = time.time()
    answer = client.list_queues()
    assert int(before) <= date_of(answer) <= time.time()
    before = time.time()
    with pytest.raises(ClientError) as refused:
        client.get_queue_url(QueueName="none")
    assert int(before) <= date_of(refused.value.response) <= time.time()
    # The server's clock, which also makes its timestamps.
    server.advance(3600)
    url = create(client)
    before = time.time() + 3600
    answer = client.send_message(QueueUrl=url, MessageBody="a")
    after = time.time() + 3600
    assert int(before) <= date_of(answer) <= after
    names = ["SentTimestamp"]
    answer = client.receive_message(QueueUrl=url, MessageSystemAttributeNames=names)
    (message,) = answer["Messages"]
    # In milliseconds, which are rounded.
    sent_at = int(message["Attributes"]["SentTimestamp"]) / 1000
    assert int(before) <= sent_at <= after + 0.001

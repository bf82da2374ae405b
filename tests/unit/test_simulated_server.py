"""The simulated SQS over HTTP: faults, long polls, its clock, and calls that it refuses."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from celery_sqs_heartbeat.testing import Fault, Faults, SimulatedServer
from tests.support.golden import golden
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.simulating import create

HOUR = 3600


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer() as running:
        yield running


@pytest.fixture
def client(server: SimulatedServer) -> Any:
    """A client that tries once."""
    return server.client(retries={"total_max_attempts": 1})


@pytest.fixture
def lease(client: Any) -> dict[str, str]:
    """The queue's URL and the handle of a message in flight."""
    url = create(client)
    client.send_message(QueueUrl=url, MessageBody="a")
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    return {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}


def ask(
    server: SimulatedServer, request: str, body: Any = b"", target: str = ""
) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE)
    try:
        connection.request(*request.split(), content, {"x-amz-target": target})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("fault", "code", "status", "is_done"),
    [
        ("throttled", "RequestThrottled", 400, False),
        ("denied", "AccessDenied", 403, False),
        ("failed", "InternalError", 500, False),
        ("failed_after", "InternalError", 500, True),
        ("lost_request", None, None, False),
        ("lost_answer", None, None, True),
    ],
)
def test_a_call_meets_its_fault(
    server: SimulatedServer,
    client: Any,
    lease: dict[str, str],
    fault: str,
    code: str | None,
    status: int | None,
    is_done: bool,
) -> None:
    server.faults = Faults(by_operation={"DeleteMessage": Fault(**{fault: 1.0})})
    with pytest.raises((ClientError, ConnectionClosedError)) as failed:
        client.delete_message(**lease)
    if code is not None:
        response = failed.value.response
        assert response["Error"]["Code"] == code
        assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert bool(server.sqs.queue("work").messages) is not is_done
    assert server.calls()["DeleteMessage"] == 1


@pytest.mark.parametrize(
    ("fault", "code", "is_senders"),
    [("entry_failed", "InternalError", False), ("entry_throttled", "RequestThrottled", True)],
)
def test_the_same_seed_fails_the_same_entries_of_a_batch(
    server: SimulatedServer,
    client: Any,
    lease: dict[str, str],
    fault: str,
    code: str,
    is_senders: bool,
) -> None:
    entries = [{"Id": str(n), "ReceiptHandle": lease["ReceiptHandle"]} for n in range(10)]
    answers = []
    for _ in range(2):
        server.faults = Faults(seed=1, by_operation={"DeleteMessage": Fault(**{fault: 0.5})})
        answer = client.delete_message_batch(QueueUrl=lease["QueueUrl"], Entries=entries)
        answers.append((answer["Successful"], answer["Failed"]))
    assert answers[0] == answers[1]
    failed = {(entry["Code"], entry["SenderFault"]) for entry in answers[0][1]}
    assert failed == {(code, is_senders)}


def test_a_request_and_its_answer_each_take_the_latency(
    server: SimulatedServer, client: Any
) -> None:
    client.list_queues()
    server.faults = Faults(by_operation={"ListQueues": Fault(latency=0.05)})
    before = time.monotonic()
    client.list_queues()
    assert time.monotonic() - before >= 0.1


#: Requests that are refused: the method, the path and an SQS call's target, and the body.
REFUSED: list[tuple[str, Any]] = [
    ("PUT /_faults", b"{"),
    ("PUT /_faults", []),
    ("PUT /_faults", {"faults": {}}),
    ("PUT /_faults", {"seed": "x"}),
    ("PUT /_faults", {"by_operation": 1}),
    ("PUT /_faults", {"by_operation": {"Receive": {}}}),
    ("PUT /_faults", {"by_operation": {"*": 1}}),
    ("PUT /_faults", {"by_operation": {"*": {"denied": 2}}}),
    ("PUT /_faults", {"by_operation": {"*": {"jitter": -1}}}),
    ("PUT /_faults", {"by_operation": {"*": {"lag": 2}}}),
    *(("POST /_advance", body) for body in (b"", [], {}, {"seconds": "x"}, {"seconds": -1})),
    ("GET /", b""),
    ("POST / AmazonSQS.TagQueue", {}),
    ("POST / AmazonSQS.Fly", {}),
    ("POST / AmazonSQS.__init__", {}),
    ("POST / AmazonSNS.Publish", {}),
    ("POST /", b"Action=ReceiveMessage"),
    ("POST / AmazonSQS.SendMessage", b"{"),
    ("POST / AmazonSQS.SendMessage", []),
    ("POST / AmazonSQS.SendMessage", {"QueueUrl": "x"}),
    ("POST / AmazonSQS.DeleteQueue", {"QueueUrl": 1}),
    ("POST / AmazonSQS.DeleteQueue", {"QueueUrl": "x"}),
]


def test_what_can_not_be_done_gets_the_reason_and_changes_nothing(server: SimulatedServer) -> None:
    before = {"seed": 3, "by_operation": {"PurgeQueue": {"denied": 1.0}}}
    assert ask(server, "PUT /_faults", before) == (200, before)
    lines = []
    for request, body in REFUSED:
        method, path, *target = request.split()
        status, answer = ask(server, f"{method} {path}", body, "".join(target))
        # Python's own words are left out, and lists that grow with each release of botocore.
        message = answer["message"].partition("Expecting property")[0][:90]
        kind = answer["__type"].rpartition("#")[2]
        lines.append(f"{request} {body}: {status} {kind}: {message}\n")
    golden("simulated_sqs_refused.txt", "".join(lines))
    assert ask(server, "GET /_faults") == (200, before)
    assert ask(server, "POST /_advance", {"seconds": 60}) == (200, {"ahead": 60})


def test_unknown_parameters_are_ignored(server: SimulatedServer, lease: dict[str, str]) -> None:
    """As AWS does: kombu 5.7 requests attributes under a name of the older protocol."""
    assert ask(server, "POST /", {**lease, "Newer": 1}, "AmazonSQS.DeleteMessage") == (200, {})


def test_bytes_are_returned_over_http_and_count_as_bytes(client: Any) -> None:
    """On the wire they are base64, which is a third longer."""
    url = create(client, MaximumMessageSize="1024")
    value = {"a": {"DataType": "Binary", "BinaryValue": bytes(range(256)) * 3}}
    client.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=value)
    answer = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])
    assert answer["Messages"][0]["MessageAttributes"] == value


@pytest.mark.parametrize("does", ["raise", "answer"])
def test_an_unforeseen_error_is_answered_and_logged_in_one_line(
    server: SimulatedServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    does: str,
) -> None:
    def fail(*ignored: Any) -> Any:
        if does == "answer":
            return {"QueueUrls": object()}
        raise LookupError("unforeseen\nand long")

    monkeypatch.setattr(server.sqs, "call", fail)
    status, answer = ask(server, "POST /", {}, "AmazonSQS.ListQueues")
    assert (status, answer["message"]) == (500, "We encountered an internal error.")
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith(
        "sqs-heartbeat: the simulated SQS failed on POST / AmazonSQS.ListQueues: "
    )
    assert ".py:" in line
    assert "\n" not in line
    assert record.exc_info is None


def test_timestamps_and_the_date_of_answers_are_those_of_sqs(
    server: SimulatedServer, client: Any
) -> None:
    server.advance(HOUR)
    url = create(client)
    before = time.time() + HOUR
    client.send_message(QueueUrl=url, MessageBody="a")
    after = time.time() + HOUR
    answer = client.receive_message(QueueUrl=url, AttributeNames=["SentTimestamp"])
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert int(before) <= parsedate_to_datetime(date).timestamp() <= time.time() + HOUR
    # In milliseconds, which are rounded.
    sent_at = int(answer["Messages"][0]["Attributes"]["SentTimestamp"]) / 1000
    assert int(before) <= sent_at <= after + 0.001


@pytest.mark.parametrize("cause", ["jump", "release", "purge and send", "stop"])
def test_a_long_poll_ends_early(
    server: SimulatedServer, client: Any, lease: dict[str, str], cause: str
) -> None:
    other = server.client()
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(
            client.receive_message, QueueUrl=lease["QueueUrl"], WaitTimeSeconds=20
        )
        wait_until(lambda: server.calls()["ReceiveMessage"] == 2)
        if cause == "jump":
            server.advance(HOUR)
        elif cause == "release":
            other.change_message_visibility(**lease, VisibilityTimeout=0)
        elif cause == "purge and send":
            other.purge_queue(QueueUrl=lease["QueueUrl"])
            other.send_message(QueueUrl=lease["QueueUrl"], MessageBody="b")
        else:
            server.stop()
            # If it ended normally, it would have an answer.
            assert isinstance(polling.exception(), ConnectionClosedError)
            return
        assert polling.result(15)["Messages"]

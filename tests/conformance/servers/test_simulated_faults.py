"""Faults in the simulation and on the way to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from celery_sqs_heartbeat.testing import Fault, Faults, SimulatedServer, shared
from tests.conformance.servers.queue import LONGEST_POLL, Queue
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def queue(simulated: SimulatedServer) -> Queue:
    """A queue with one message in flight, and a client that tries once."""
    client = simulated.client(retries={"total_max_attempts": 1})
    made = Queue(client, client.create_queue(QueueName="work")["QueueUrl"])
    made.send("a")
    return made


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        ("throttled", "RequestThrottled", 400),
        ("denied", "AccessDenied", 403),
        ("failed", "InternalError", 500),
    ],
)
def test_a_refused_call_is_not_done(
    simulated: SimulatedServer, queue: Queue, fault: str, code: str, status: int
) -> None:
    handle = queue.take()
    simulated.faults = Faults(by_operation={"DeleteMessage": Fault(**{fault: 1.0})})
    with pytest.raises(ClientError) as refused:
        queue.delete(handle)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert simulated.sqs.queue("work").messages


def test_a_lost_request_is_not_done(simulated: SimulatedServer, queue: Queue) -> None:
    handle = queue.take()
    simulated.faults = Faults(by_operation={"*": Fault(lost_request=1.0)})
    with pytest.raises(ConnectionClosedError):
        queue.delete(handle)
    assert simulated.sqs.queue("work").messages


def test_a_call_whose_answer_is_lost_is_done(simulated: SimulatedServer, queue: Queue) -> None:
    handle = queue.take()
    simulated.faults = Faults(by_operation={"*": Fault(lost_answer=1.0)})
    with pytest.raises(ConnectionClosedError):
        queue.delete(handle)
    assert not simulated.sqs.queue("work").messages


def test_a_call_that_fails_afterwards_is_done(simulated: SimulatedServer, queue: Queue) -> None:
    handle = queue.take()
    simulated.faults = Faults(by_operation={"DeleteMessage": Fault(failed_after=1.0)})
    with pytest.raises(ClientError) as failed:
        queue.delete(handle)
    assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert not simulated.sqs.queue("work").messages


@pytest.mark.parametrize(
    ("fault", "code", "is_senders"),
    [("entry_failed", "InternalError", False), ("entry_throttled", "RequestThrottled", True)],
)
def test_an_entry_of_a_batch_fails_alone(
    simulated: SimulatedServer, queue: Queue, fault: str, code: str, is_senders: bool
) -> None:
    handle = queue.take()
    simulated.faults = Faults(seed=1, by_operation={"DeleteMessage": Fault(**{fault: 0.5})})
    answer = queue.delete_batch(*((str(n), handle) for n in range(10)))
    assert answer["Successful"]
    assert {(entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]} == {
        (code, is_senders)
    }


def test_calls_travel_side_by_side(
    simulated: SimulatedServer, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, travelled = threading.Event(), list[float]()

    def travel(seconds: float) -> None:
        if seconds:
            travelled.append(seconds)
            is_over.wait(PATIENCE)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=travel)
    monkeypatch.setattr(shared, "time", clock)
    simulated.faults = Faults(by_operation={"ListQueues": Fault(latency=5)})
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(queue.client.list_queues)
        wait_until(lambda: travelled)
        queue.attribute("QueueArn")
        assert not slow.done()
        is_over.set()
        slow.result()
    assert travelled == [5, 5]


def test_the_same_seed_brings_the_same_faults(simulated: SimulatedServer, queue: Queue) -> None:
    def outcomes() -> list[bool]:
        simulated.faults = Faults(seed=7, by_operation={"SendMessage": Fault(throttled=0.5)})
        return [_is_done(queue.send, "a") for _ in range(20)]

    first = outcomes()
    assert first == outcomes()
    assert set(first) == {True, False}


def test_the_admin_endpoint_returns_and_sets_the_faults(
    simulated: SimulatedServer, queue: Queue
) -> None:
    wanted = {"seed": 3, "by_operation": {"SendMessage": {"denied": 1.0}}}
    assert _ask(simulated, "PUT", "/_faults", wanted) == (200, wanted)
    assert _ask(simulated, "GET", "/_faults") == (200, wanted)
    assert not _is_done(queue.send, "b")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (b"{", "not JSON"),
        (b"[]", "must look like"),
        ({"faults": {}}, "must look like"),
        ({"seed": "x"}, "seed='x' must be a whole number"),
        ({"by_operation": 1}, "by_operation=1 must map"),
        ({"by_operation": {"Receive": {}}}, "'Receive' is not known; known are"),
        ({"by_operation": {"*": 1}}, "*: 1 must map"),
        ({"by_operation": {"*": {"denied": 2}}}, "*: fault denied=2 must be a rate"),
        ({"by_operation": {"*": {"lag": 2}}}, "*: fault 'lag' is not known; known are"),
    ],
)
def test_bad_faults_are_refused_and_change_nothing(
    simulated: SimulatedServer, wrong: Any, told: str
) -> None:
    before = {"seed": 3, "by_operation": {"SendMessage": {"denied": 1.0}}}
    _ask(simulated, "PUT", "/_faults", before)
    status, answer = _ask(simulated, "PUT", "/_faults", wrong)
    assert status == 400
    assert told in answer["message"]
    assert _ask(simulated, "GET", "/_faults") == (200, before)


def test_the_calls_are_counted_by_operation(simulated: SimulatedServer, queue: Queue) -> None:
    queue.send("b")
    assert _ask(simulated, "GET", "/_calls") == (200, {"CreateQueue": 1, "SendMessage": 2})
    assert simulated.calls() == {"CreateQueue": 1, "SendMessage": 2}


def test_the_clock_is_moved_by_the_admin_endpoint(simulated: SimulatedServer, queue: Queue) -> None:
    queue.take(VisibilityTimeout=40_000)
    assert _ask(simulated, "POST", "/_advance", {"seconds": 30_000}) == (200, {"ahead": 30_000})
    assert not queue.look()
    assert _ask(simulated, "POST", "/_advance", {"seconds": 10_000}) == (200, {"ahead": 40_000})
    assert queue.look()


@pytest.mark.parametrize("wrong", [b"", [], {}, {"seconds": "x"}, {"seconds": -1}])
def test_the_admin_endpoint_refuses_nonsense_for_the_clock(
    simulated: SimulatedServer, wrong: Any
) -> None:
    status, answer = _ask(simulated, "POST", "/_advance", wrong)
    assert status == 400
    assert "seconds" in answer["message"]
    assert _ask(simulated, "POST", "/_advance", {"seconds": 0}) == (200, {"ahead": 0})


def test_an_unknown_page_lists_the_known_ones(simulated: SimulatedServer) -> None:
    status, answer = _ask(simulated, "GET", "/")
    assert status == 404
    assert "GET /_faults" in answer["message"]


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("", b"Action=ReceiveMessage", "UnknownOperationException"),
        ("AmazonSQS.__init__", {}, "UnknownOperationException"),
        ("AmazonSQS.Batch", {}, "UnknownOperationException"),
        ("AmazonSQS.SendMessage", b"{", "SerializationException"),
        ("AmazonSQS.SendMessage", [], "SerializationException"),
        ("AmazonSQS.SendMessage", {"QueueUrl": "x"}, "MissingRequiredParameterException"),
        ("AmazonSQS.SendMessage", {"QueueUrl": "x", "MessageBody": 1}, "SerializationException"),
        ("AmazonSQS.ReceiveMessage", {"QueueUrl": "nowhere"}, "QueueDoesNotExist"),
    ],
)
def test_a_malformed_call_is_refused(
    simulated: SimulatedServer, target: str, body: Any, code: str
) -> None:
    status, answer = _ask(simulated, "POST", "/", body, {"X-Amz-Target": target})
    assert status == 400
    assert answer["__type"] == f"com.amazonaws.sqs#{code}"


def test_unknown_parameters_are_ignored(simulated: SimulatedServer, queue: Queue) -> None:
    """As AWS does: kombu 5.7 requests attributes under a name of the older protocol."""
    body = {"QueueUrl": queue.url, "Newer": 1}
    status, answer = _ask(
        simulated, "POST", "/", body, {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    )
    assert status == 200
    assert len(answer["Messages"]) == 1


def test_a_stopped_server_ends_its_long_polls() -> None:
    with SimulatedServer() as server, ThreadPoolExecutor() as pool:
        client = server.client(retries={"total_max_attempts": 1})
        url = client.create_queue(QueueName="work")["QueueUrl"]
        polling = pool.submit(client.receive_message, QueueUrl=url, WaitTimeSeconds=LONGEST_POLL)
        wait_until(lambda: server.calls().get("ReceiveMessage"))
        server.stop()
        # If it ended normally, it would have an answer.
        assert isinstance(polling.exception(), ConnectionClosedError)


def _is_done(call: Any, *args: Any) -> bool:
    try:
        call(*args)
    except ClientError:
        return False
    return True


def _ask(
    simulated: SimulatedServer,
    method: str,
    path: str,
    body: Any = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(simulated.url).netloc, timeout=PATIENCE)
    try:
        connection.request(method, path, content, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()

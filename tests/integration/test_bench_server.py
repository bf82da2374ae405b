"""boto3 and kombu accept what the benchmarks' endless server answers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from vine import promise

from benchmarks.endless.server import BenchQueue, EndlessServer
from benchmarks.endless.template import SENT
from benchmarks.endless.working import NOTHING, TIMED
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndlessServer]:
    with EndlessServer(tmp_path_factory.mktemp("endless") / "server.log") as server:
        yield server


@pytest.fixture
def queue(server: EndlessServer) -> BenchQueue:
    return server.queue(NOTHING)


@pytest.fixture
def client(server: EndlessServer) -> Any:
    return server.client()


def url_of(client: Any, queue: BenchQueue) -> str:
    url = client.get_queue_url(QueueName=queue.name)["QueueUrl"]
    assert isinstance(url, str)
    return url


def received(client: Any, url: str, count: int = 10) -> list[dict[str, Any]]:
    answer = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=count, MessageSystemAttributeNames=["All"]
    )
    return list(answer.get("Messages", []))


def test_an_endless_queue_returns_as_many_messages_as_requested(
    client: Any, queue: BenchQueue
) -> None:
    queue.fill(is_endless=True)
    url = url_of(client, queue)
    messages = [*received(client, url, 10), *received(client, url, 3)]
    assert len(messages) == 13
    assert len({each["MessageId"] for each in messages}) == 13
    assert len({each["ReceiptHandle"] for each in messages}) == 13


def test_a_message_has_its_digest_and_the_requested_attributes(
    client: Any, queue: BenchQueue
) -> None:
    queue.fill(is_endless=True)
    (message,) = received(client, url_of(client, queue), 1)
    assert message["MD5OfBody"] == hashlib.md5(message["Body"].encode()).hexdigest()
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    sent = int(message["Attributes"]["SentTimestamp"]) / 1000
    assert time.time() - 60 < sent < time.time() + 1


def test_deletes_count_each_message_once(client: Any, queue: BenchQueue) -> None:
    queue.fill(count=12)
    url = url_of(client, queue)
    first, *others = received(client, url)
    client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    entries = [
        {"Id": str(index), "ReceiptHandle": each["ReceiptHandle"]}
        for index, each in enumerate([first, *others])
    ]
    answer = client.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == [str(index) for index in range(10)]
    counts = queue.counts(events=True)
    assert (counts.received, counts.deleted, counts.in_flight) == (10, 10, 0)
    assert [count for _, count in counts.deletes] == [1, 9]
    assert counts.calls["DeleteMessageBatch"] == 1


def test_extensions_succeed_while_a_message_is_in_flight(client: Any, queue: BenchQueue) -> None:
    queue.fill(count=1)
    url = url_of(client, queue)
    (message,) = received(client, url)
    handle = message["ReceiptHandle"]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=30)
    client.delete_message(QueueUrl=url, ReceiptHandle=handle)
    entries = [{"Id": "0", "ReceiptHandle": handle, "VisibilityTimeout": 30}]
    answer = client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert answer["Failed"][0]["Code"] == "MessageNotInflight"


def test_a_confirming_queue_extends_messages_that_it_never_had(
    server: EndlessServer, client: Any
) -> None:
    url = url_of(client, server.confirming("confirming"))
    entries = [{"Id": "0", "ReceiptHandle": "made up", "VisibilityTimeout": 30}]
    answer = client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["0"]


def test_a_long_poll_ends_when_a_message_is_added(client: Any, queue: BenchQueue) -> None:
    queue.fill(every=0.02)
    answer = client.receive_message(QueueUrl=url_of(client, queue), WaitTimeSeconds=20)
    assert len(answer["Messages"]) == 1


def test_an_empty_queue_answers_without_messages(client: Any, queue: BenchQueue) -> None:
    url = url_of(client, queue)
    assert received(client, url) == []
    attributes = client.get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "QueueArn"]
    )["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "0"
    assert attributes["QueueArn"].endswith(queue.name)


def test_an_unknown_queue_is_refused(client: Any) -> None:
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.receive_message(QueueUrl="http://127.0.0.1/0/none")


def test_queues_are_listed_and_take_messages(client: Any, queue: BenchQueue) -> None:
    url = client.create_queue(QueueName=queue.name)["QueueUrl"]
    assert client.list_queues(QueueNamePrefix=queue.name)["QueueUrls"] == [url]
    client.send_message(QueueUrl=url, MessageBody="ignored")
    assert len(received(client, url)) == 1


# kombu uses names of curl that newer versions have replaced.
@pytest.mark.filterwarnings("ignore:.* is deprecated; use:DeprecationWarning")
def test_kombus_event_loop_client_reads_a_task_with_the_time_of_its_send(
    server: EndlessServer,
) -> None:
    queue = server.queue(TIMED, [SENT])
    queue.fill(count=1)
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    answers: list[Any] = []
    try:
        with Connection(server.broker_url, transport_options={"is_secure": False}) as connection:
            channel = connection.default_channel
            channel._get_from_sqs(
                queue.name,
                channel._queue_cache[queue.name],
                channel.asynsqs(queue=queue.name),
                callback=promise(answers.append),
            )
            wait_until(lambda: hub.run_once() or answers)
            (payload,) = channel._messages_to_python(answers[0]["Messages"], queue.name)
            message = channel.Message(payload, channel=channel)
    finally:
        hub.close()
        set_event_loop(before)
    assert message.headers["task"] == TIMED
    assert message.headers["id"] == message.properties["correlation_id"]
    assert 0 < time.monotonic() - message.decode()[0][0] < 60

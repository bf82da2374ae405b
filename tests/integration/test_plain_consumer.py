"""The keeper without Celery, on real servers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from celery_sqs_heartbeat import BotoSqs, LeaseKeeper, LeaseTerms, short_config
from tests.support.faults import fail_entries, first, lose_answer
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer, MotoServer, SqsServer
from tests.support.waiting import PATIENCE, wait_until

#: A lease is extended after a second. Most of the timeout remains, in case the machine stalls.
TERMS = LeaseTerms(visibility_timeout=12, threshold=11)
#: The same where a call may take long.
LONG_TERMS = LeaseTerms(visibility_timeout=120, threshold=119)


@pytest.fixture(scope="module", params=["ministack", "moto"])
def server(request: pytest.FixtureRequest, sqs_server: MinistackServer) -> Iterator[SqsServer]:
    if request.param == "ministack":
        yield sqs_server
    else:
        with MotoServer() as moto:
            yield moto


class Consumer:
    """A plain boto3 consumer on its own queue."""

    def __init__(self, proxy: FaultProxy, terms: LeaseTerms) -> None:
        self.proxy = proxy
        self.terms = terms
        self.client = proxy.client()
        self.url = str(self.client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:12]}")["QueueUrl"])
        quick = proxy.client(**_options(short_config(terms.threshold)))
        self.keeper = LeaseKeeper(BotoSqs(quick), terms=terms)

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.client.send_message(QueueUrl=self.url, MessageBody=body)

    def look(self, seconds: int) -> list[dict[str, Any]]:
        """Return the messages of one long poll."""
        answer = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=seconds,
            VisibilityTimeout=self.terms.visibility_timeout,
        )
        return list(answer.get("Messages", ()))

    def left(self) -> int:
        """Return how many messages the queue has, hidden or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages of the first long poll that returns any."""
        received: list[dict[str, Any]] = []
        wait_until(lambda: received.extend(self.look(20)) or received)
        return received


def _options(config: Any) -> dict[str, Any]:
    return {
        "connect_timeout": config.connect_timeout,
        "read_timeout": config.read_timeout,
        "max_pool_connections": config.max_pool_connections,
        "retries": config.retries,
    }


@pytest.fixture
def terms() -> LeaseTerms:
    return TERMS


@pytest.fixture
def consumer(server: SqsServer, terms: LeaseTerms) -> Iterator[Consumer]:
    with FaultProxy(server.url) as proxy:
        consumer = Consumer(proxy, terms)
        consumer.keeper.start()
        yield consumer
        consumer.keeper.stop()


def test_a_held_message_stays_hidden_past_its_timeout_and_is_deleted(consumer: Consumer) -> None:
    consumer.send("a")
    (message,) = consumer.receive()
    with consumer.keeper.hold(consumer.url, message):
        assert consumer.look(TERMS.visibility_timeout + 1) == []
    assert consumer.keeper.flush(PATIENCE)
    assert consumer.left() == 0


def test_a_message_whose_block_fails_is_received_again_at_once(consumer: Consumer) -> None:
    consumer.send("a")
    (message,) = consumer.receive()
    hide_for_long = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 600}
    consumer.client.change_message_visibility(QueueUrl=consumer.url, **hide_for_long)
    with pytest.raises(RuntimeError), consumer.keeper.hold(consumer.url, message):
        raise RuntimeError
    (again,) = consumer.receive()
    assert again["MessageId"] == message["MessageId"]


def test_many_deletes_share_batches_and_are_confirmed_even_if_entries_fail(
    consumer: Consumer,
) -> None:
    consumer.proxy.rule("DeleteMessageBatch", fail_entries(0.4, seed=3))
    consumer.send(*(f"m{number}" for number in range(10)))
    held = 0
    while held < 10:
        for message in consumer.receive():
            with consumer.keeper.hold(consumer.url, message):
                held += 1
    assert consumer.keeper.flush(PATIENCE)
    assert consumer.left() == 0
    batches = consumer.proxy.calls("DeleteMessageBatch")
    assert any((call.answer or {}).get("Failed") for call in batches)
    assert consumer.proxy.calls("DeleteMessage") == []


def test_a_delete_whose_answer_was_lost_is_confirmed_by_the_next(consumer: Consumer) -> None:
    consumer.proxy.rule("DeleteMessageBatch", first(1, lose_answer()))
    consumer.send("a")
    (message,) = consumer.receive()
    with consumer.keeper.hold(consumer.url, message):
        pass
    assert consumer.keeper.flush(PATIENCE)
    assert len(consumer.proxy.calls("DeleteMessageBatch")) >= 2


@pytest.mark.parametrize("terms", [LONG_TERMS], ids=["long"])
def test_a_hung_call_fails_within_the_threshold_and_is_repeated(consumer: Consumer) -> None:
    repeated = threading.Event()

    def hang(body: Any, forward: Any) -> Any:
        repeated.wait(PATIENCE)
        return forward(body)

    consumer.proxy.rule("ChangeMessageVisibilityBatch", first(1, hang))
    consumer.send("a")
    (message,) = consumer.receive()
    with consumer.keeper.hold(consumer.url, message) as lease:
        consumer.proxy.wait_for("ChangeMessageVisibilityBatch")
        repeated.set()
        wait_until(lambda: lease.extensions)
    assert consumer.keeper.flush(PATIENCE)

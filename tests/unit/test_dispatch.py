"""A keeper's calls on threads: one that hangs stops no other, and is never sent once given up.

A message that a release would make a dead letter is sent again, and deleted only after that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Call, Outcome
from celery_sqs_heartbeat.leases.lease import Goal, LeaseTerms
from celery_sqs_heartbeat.leases.message import content_of
from celery_sqs_heartbeat.receiving.reception import MessageSender
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.sending import CallGivenUp, guard
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.book_scripts import QUEUE, Book


class SlowSqs:
    """Takes a while until it may send a call, and another until it is answered."""

    def __init__(self) -> None:
        self.prepared, self.answered = threading.Semaphore(0), threading.Semaphore(0)
        self.steps: list[tuple[str, str]] = []

    def send(self, call: Call, may_send: Callable[[], bool]) -> Sequence[Outcome]:
        name = call.entries[0].receipt_handle
        self.steps.append(("prepares", name))
        assert self.prepared.acquire(timeout=PATIENCE)
        if not may_send():
            raise CallGivenUp
        self.steps.append(("sends", name))
        assert self.answered.acquire(timeout=PATIENCE)
        return [Outcome.DONE] * len(call.entries)


class Dispatching:
    """Calls, each of another queue: their entries are named m1, m2, ..."""

    def __init__(self, threads: int, script: str = "20 sizes 1 1 1") -> None:
        self.book = Book().play("receive m1 queue_url=1; receive m2 queue_url=2")
        self.m1, self.m2, *_ = self.book.play(f"receive m3 queue_url=3; {script}").open
        self.sqs = SlowSqs()
        self.dispatcher = ThreadDispatcher(self.sqs, threads, lambda: self.book.now)
        self.settled: dict[str, list[Outcome]] = {}

    def dispatch(self, *calls: Call) -> None:
        for call in calls:
            name = call.entries[0].receipt_handle
            self.dispatcher.dispatch(
                call, lambda outcomes, name=name: self.settled.update({name: list(outcomes)})
            )

    def wait_for(self, *step: str) -> None:
        wait_until(lambda: step in self.sqs.steps)

    def end(self) -> dict[str, list[Outcome]]:
        self.sqs.prepared.release(9)
        self.sqs.answered.release(9)
        wait_until(lambda: not self.dispatcher._jobs)
        self.dispatcher.close()
        return self.settled


def test_a_call_that_was_given_up_keeps_its_thread_and_the_next_gets_another() -> None:
    calls = Dispatching(2)
    calls.sqs.prepared.release(2)
    calls.dispatch(calls.m1)
    calls.wait_for("sends", "m1")
    # It may have been sent.
    assert calls.dispatcher.give_up(calls.m1)
    calls.dispatch(calls.m2)
    calls.wait_for("sends", "m2")
    assert calls.settled == {}
    # Its answer counts, however late it is.
    assert calls.end() == {"m1": [Outcome.DONE], "m2": [Outcome.DONE]}
    assert calls.dispatcher.give_up(calls.m1)


def test_a_call_that_was_given_up_before_a_thread_was_free_is_not_made() -> None:
    calls = Dispatching(1)
    calls.dispatch(calls.m1, calls.m2)
    calls.wait_for("prepares", "m1")
    assert not calls.dispatcher.give_up(calls.m2)
    # Its queue has its place again.
    assert calls.end() == {"m1": [Outcome.DONE], "m2": [Outcome.UNKNOWN]}
    assert ("prepares", "m2") not in calls.sqs.steps


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_was_given_up_before_it_was_sent_never_is() -> None:
    calls = Dispatching(1)
    calls.dispatch(calls.m1)
    calls.wait_for("prepares", "m1")
    assert not calls.dispatcher.give_up(calls.m1)
    assert calls.end() == {"m1": [Outcome.UNKNOWN]}
    assert ("sends", "m1") not in calls.sqs.steps


@pytest.mark.parametrize(("waits", "outcome"), [(29.9, Outcome.DONE), (30.0, Outcome.FAILED)])
def test_a_release_is_not_sent_once_its_lease_has_expired(waits: float, outcome: Outcome) -> None:
    calls = Dispatching(1, "release m1; release m2; sizes 1 1")
    calls.dispatch(calls.m1)
    calls.wait_for("prepares", "m1")
    calls.book.play(f"{waits} left 3")
    assert calls.end() == {"m1": [outcome]}
    assert (("sends", "m1") in calls.sqs.steps) is (outcome is Outcome.DONE)


def test_a_call_must_be_sent_before_the_first_of_its_releases_expires() -> None:
    script = "receive m1 hidden=35; receive m2; release m1; release m2; calls release m1=0 m2=0"
    (releases,) = Book().play(script).open
    (extension,) = Book().play("receive a; 20 sizes 1").open
    assert (releases.send_by, extension.send_by) == (1030.0, float("inf"))


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def client(sent: list[str]) -> Any:
    """A boto3 client that notes what it would send."""
    client = boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    guard(client)

    def send(request: Any, **_: object) -> None:
        sent.append(request.url)
        raise ConnectionClosedError(endpoint_url=request.url)

    client.meta.events.register_last("before-send", send)
    return client


@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize("may_send", [True, False])
def test_a_client_sends_only_what_still_may_be_sent(
    client: Any, sent: list[str], may_send: bool, is_guarded: bool
) -> None:
    asked: list[bool] = []
    # A guarded client asks when all is signed, another one before.
    client.meta.events.register("before-sign", lambda **_: asked.append(True))
    plain = type("Plain", (), {"receive_message": client.receive_message})()
    sqs = BotoSqs(None, client if is_guarded else plain)
    receive = partial(sqs.receive, "http://127.0.0.1:9/1/q", count=1, wait=0, timeout=None)
    with pytest.raises(ConnectionClosedError if may_send else CallGivenUp):
        receive(attributes={}, may_send=lambda: may_send)
    assert bool(sent) is may_send
    assert bool(asked) is (is_guarded or may_send)


class Sender:
    """Sends a message again, as the last receive of it, and keeps what it sent."""

    def __init__(self, error: Exception | None = None, **message: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self._error = error
        self.clock, sqs = FakeClock(), BotoSqs(self)
        self.keeper = ThreadKeeper(sqs, clock=self.clock, terms=LeaseTerms.of(30))
        tenant = {"MessageGroupId": "tenant"}
        given = {"MessageId": "m", "ReceiptHandle": "h", "Body": "b", "Attributes": tenant}
        self.message = {**given, **message}
        self.keeper.receive(QUEUE, self.message)
        self.sender = MessageSender(self.keeper, sqs.send_message, lambda job: job())

    def send_message(self, **parameters: Any) -> dict[str, str]:
        self.sent.append(parameters)
        if self._error:
            raise self._error
        return {"MessageId": "copy"}

    def replace(self, after: float = 0.0) -> tuple[Goal, str] | None:
        """Send it again so many seconds after its receive. Return how its lease ends."""
        self.clock.advance(after)
        assert self.sender.send_again("h", content_of(self.message), 1000.5, "shutdown")
        assert self.sender.wait(0) == 0
        lease = self.keeper.find("h")
        return lease and (lease.goal, lease.cause)


@pytest.mark.parametrize("binary", [b"\x00\xff", "AP8="], ids=["from boto3", "from the event loop"])
def test_a_copy_has_the_body_attributes_and_tenant_of_its_message(binary: bytes | str) -> None:
    text = {"DataType": "String", "StringValue": "t"}
    received = {"text": text, "bytes": {"DataType": "Binary", "BinaryValue": binary, "Lists": []}}
    sender = Sender(MessageAttributes=received)
    assert sender.replace() == (Goal.DELETE, "sent again")
    binary_again = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    assert sender.sent == [
        {
            "QueueUrl": QUEUE,
            "MessageBody": "b",
            "MessageAttributes": {"text": text, "bytes": binary_again},
            # The longest that SQS allows, and not the queue's own.
            "DelaySeconds": 900,
            "MessageGroupId": "tenant",
        }
    ]


def test_a_message_whose_copy_sqs_does_not_confirm_is_released() -> None:
    assert Sender(TimeoutError("no answer")).replace() == (Goal.RELEASE, "shutdown")


def test_a_message_that_may_be_someone_elses_is_neither_sent_again_nor_released() -> None:
    assert Sender().replace(after=29.9) == (Goal.DELETE, "sent again")
    sender = Sender()
    assert sender.replace(after=30.0) is None
    assert sender.sent == []

"""Calls that hang: others are made in their place, and the hanging calls send nothing any more."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.sending import CallGivenUp, guard
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.book_harness import BookHarness


class HangingSqs:
    """Hangs in every call until the test releases it."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.let_go = threading.Event()

    def send(self, call: Call, may_send: Callable[[], bool]) -> Sequence[Outcome]:
        assert may_send()
        self.begun.append(call.number)
        self.let_go.wait()
        return [Outcome.DONE] * len(call.entries)


@pytest.fixture
def sqs() -> Iterator[HangingSqs]:
    sqs = HangingSqs()
    yield sqs
    sqs.let_go.set()


def planned(count: int) -> list[Call]:
    """Return that many calls, each for a different queue."""
    booking = BookHarness()
    for number in range(count):
        booking.receive(f"m{number}", queue=f"https://sqs/1/q{number}")
    booking.now += 20
    return booking.plan(count)


def test_a_call_that_was_given_up_keeps_its_thread_and_the_next_one_gets_another(
    sqs: HangingSqs,
) -> None:
    stuck, after, last = planned(3)
    dispatcher = ThreadDispatcher(sqs, 2)
    settled: list[int] = []
    for call in (stuck, after):
        dispatcher.dispatch(call, lambda outcomes, number=call.number: settled.append(number))
        wait_until(lambda call=call: sqs.begun[-1:] == [call.number])
        # The client does not report when it sends.
        assert dispatcher.give_up(call)
    dispatcher.dispatch(last, lambda outcomes: settled.append(last.number))
    assert (sqs.begun, settled) == ([stuck.number, after.number], [])
    sqs.let_go.set()
    # Their answers are passed on, however late they arrive.
    wait_until(lambda: sorted(settled) == [stuck.number, after.number, last.number])


def test_a_call_that_was_given_up_before_a_thread_was_free_is_not_made(sqs: HangingSqs) -> None:
    stuck, waiting, last = planned(3)
    dispatcher = ThreadDispatcher(sqs, 1)
    settled: list[int] = []
    for call in (stuck, waiting, last):
        dispatcher.dispatch(call, lambda outcomes, number=call.number: settled.append(number))
    wait_until(lambda: sqs.begun == [stuck.number])
    assert not dispatcher.give_up(waiting)
    sqs.let_go.set()
    wait_until(lambda: last.number in settled)
    assert sqs.begun == [stuck.number, last.number]
    # Its queue has its place again.
    assert waiting.number in settled


def test_giving_up_a_call_that_has_ended_meanwhile_changes_nothing(sqs: HangingSqs) -> None:
    call, after = planned(2)
    dispatcher = ThreadDispatcher(sqs, 1)
    sqs.let_go.set()
    settled: list[int] = []
    for each in (call, after):
        dispatcher.dispatch(each, lambda outcomes, number=each.number: settled.append(number))
    # Its only thread has finished the call when it takes the next one.
    wait_until(lambda: settled == [call.number, after.number])
    assert dispatcher.give_up(call)
    dispatcher.close()


@dataclass
class SlowToStart:
    """Takes a while to create a client, then to send with it."""

    clients: Semaphore = field(default_factory=lambda: Semaphore(0))
    sends: Semaphore = field(default_factory=lambda: Semaphore(0))
    steps: list[str] = field(default_factory=list)

    def client(self, queue_url: str) -> SlowToStart:
        self.steps.append("makes a client")
        assert self.clients.acquire(timeout=PATIENCE)
        return self

    def change_message_visibility_batch(self, **_: object) -> dict[str, list[dict[str, str]]]:
        self.steps.append("sends")
        assert self.sends.acquire(timeout=PATIENCE)
        return {"Successful": [{"Id": "0"}]}


def test_a_call_given_up_while_its_client_is_created_is_never_sent() -> None:
    sqs = SlowToStart()
    (call,) = planned(1)
    dispatcher = ThreadDispatcher(BotoSqs(sqs.client), 1)
    settled: list[Sequence[Outcome]] = []
    dispatcher.dispatch(call, settled.append)
    wait_until(lambda: sqs.steps == ["makes a client"])
    assert not dispatcher.give_up(call)
    sqs.clients.release()
    wait_until(lambda: settled)
    assert (settled, sqs.steps) == ([[Outcome.UNKNOWN]], ["makes a client"])
    dispatcher.close()


def test_a_call_given_up_inside_a_client_that_checks_is_never_sent(
    client: Any, sent: list[str]
) -> None:
    steps: list[str] = []
    signs = Semaphore(0)

    def sign(**_: object) -> None:
        steps.append("signs")
        assert signs.acquire(timeout=PATIENCE)

    client.meta.events.register("before-sign", sign)
    (call,) = planned(1)
    dispatcher = ThreadDispatcher(BotoSqs(client), 1)
    settled: list[Sequence[Outcome]] = []
    dispatcher.dispatch(call, settled.append)
    wait_until(lambda: steps == ["signs"])
    assert not dispatcher.give_up(call)
    signs.release(99)
    wait_until(lambda: settled)
    assert (settled, sent) == ([[Outcome.UNKNOWN]], [])
    dispatcher.close()


@pytest.mark.parametrize(("waits", "is_sent"), [(29.9, True), (30.0, False)])
def test_a_release_is_not_sent_once_its_lease_has_expired(waits: float, *, is_sent: bool) -> None:
    booking = BookHarness()
    booking.receive("m1")
    booking.book.release("m1", 0, booking.now)
    call = booking.one_call()
    sqs = SlowToStart()
    dispatcher = ThreadDispatcher(BotoSqs(sqs.client), 1, lambda: booking.now)
    settled: list[Sequence[Outcome]] = []
    dispatcher.dispatch(call, settled.append)
    wait_until(lambda: sqs.steps == ["makes a client"])
    booking.now += waits
    sqs.sends.release()
    sqs.clients.release()
    wait_until(lambda: settled)
    assert settled == [[Outcome.DONE if is_sent else Outcome.FAILED]]
    assert sqs.steps == ["makes a client", "sends"][: 1 + is_sent]
    dispatcher.close()


def test_a_call_must_be_sent_before_the_first_of_its_releases_expires() -> None:
    booking = BookHarness()
    for name, hidden_for in (("m1", 30), ("m2", 35)):
        booking.receive(name, hidden_for=hidden_for)
        booking.book.release(name, 0, booking.now)
    call = booking.one_call()
    assert (len(call.entries), call.send_by) == (2, 1030.0)


def test_an_extension_is_sent_even_if_it_is_late() -> None:
    (call,) = planned(1)
    assert call.send_by == math.inf


def test_an_extension_that_is_given_up_later_may_have_been_sent() -> None:
    sqs = SlowToStart()
    (call,) = planned(1)
    dispatcher = ThreadDispatcher(BotoSqs(sqs.client), 1)
    settled: list[Sequence[Outcome]] = []
    dispatcher.dispatch(call, settled.append)
    sqs.clients.release()
    wait_until(lambda: sqs.steps == ["makes a client", "sends"])
    assert dispatcher.give_up(call)
    sqs.sends.release()
    wait_until(lambda: settled == [[Outcome.DONE]])
    dispatcher.close()


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def client(sent: list[str]) -> SimpleNamespace:
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

    def send(request: SimpleNamespace, **_: object) -> None:
        sent.append(request.url)
        raise ConnectionClosedError(endpoint_url=request.url)

    client.meta.events.register_last("before-send", send)
    return client


@pytest.mark.parametrize(
    ("may_send", "error"), [(lambda: True, ConnectionClosedError), (lambda: False, CallGivenUp)]
)
def test_a_receive_is_sent_only_if_it_still_may_be(
    client: SimpleNamespace,
    sent: list[str],
    may_send: Callable[[], bool],
    error: type[Exception],
) -> None:
    receive = partial(BotoSqs(None, client).receive, "http://127.0.0.1:9/1/q", count=1, wait=0)
    with pytest.raises(error):
        receive(timeout=None, attributes={}, may_send=may_send)
    assert bool(sent) is may_send()

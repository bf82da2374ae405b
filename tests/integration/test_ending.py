"""What happens to the answer to a poll whose consumer or worker has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from kombu import Consumer, Queue

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.receiving import reception
from celery_sqs_heartbeat.receiving.receiver import Receiver
from celery_sqs_heartbeat.sqs.long_polls import Poll, Receiving, Source
from celery_sqs_heartbeat.worker.shutdown import end_polls
from tests.integration.test_transport import ChannelHarness
from tests.support.held_polls import HeldPolls
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE, wait_until

End = Callable[[ChannelHarness, Consumer], object]
ENDS: dict[str, End] = {
    "the consumer is cancelled": lambda desk, consumer: consumer.cancel(),
    "the channel is closed": lambda desk, consumer: desk.channel.close(),
    "the worker ends": lambda desk, consumer: end_polls(desk.heartbeat),
}


@pytest.fixture
def desk(proxy: FaultProxy) -> Iterator[ChannelHarness]:
    # No message becomes visible again by its timeout during a test.
    made = ChannelHarness(proxy, visibility_timeout=600)
    yield made
    made.close()


@pytest.fixture
def polls(desk: ChannelHarness) -> Iterator[HeldPolls]:
    made = HeldPolls(desk.proxy)
    yield made
    made.end()


def settle(desk: ChannelHarness) -> None:
    """Wait until no poll is open, and SQS has confirmed all releases."""
    desk.joined.join()
    # What was handed over is released by the worker.
    desk.drain()
    assert desk.keeper.flush(PATIENCE)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("has_arrived", [False, True], ids=["poll is open", "message waits"])
def test_a_message_that_has_not_reached_its_consumer_by_its_end_is_released(
    desk: ChannelHarness, polls: HeldPolls, end: End, has_arrived: bool
) -> None:
    got: list[Any] = []
    desk.publish("a")
    consumer = desk.consume(got.append)
    desk.drain_until(lambda: polls.open)
    (poll,) = polls.open
    if has_arrived:
        poll.forward()
        wait_until(lambda: len(desk.keeper))
    end(desk, consumer)
    if has_arrived:
        polls.end()
    else:
        poll.forward()
    settle(desk)
    assert desk.batches() == [1]
    assert (got, polls.open, len(desk.keeper), desk.counts()) == ([], [], 0, (1, 0))


def test_a_message_that_is_being_leased_when_its_worker_ends_is_released(
    desk: ChannelHarness, polls: HeldPolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.publish("a")
    receive = desk.keeper.receive

    def receive_and_end(*args: Any, **options: Any) -> Any:
        receipt = receive(*args, **options)
        end_polls(desk.heartbeat)
        return receipt

    monkeypatch.setattr(desk.keeper, "receive", receive_and_end)
    desk.consume(lambda message: None)
    desk.drain_until(lambda: polls.open)
    polls.open[0].forward()
    settle(desk)
    assert desk.batches() == [1]
    assert (len(desk.keeper), desk.counts()) == (0, (1, 0))


@pytest.mark.parametrize("name", ["the channel is closed", "the worker ends"])
def test_the_rest_of_an_answer_is_released_if_the_end_comes_amid_its_delivery(
    desk: ChannelHarness, polls: HeldPolls, name: str
) -> None:
    desk.publish("a", "b", "c")
    got: list[Any] = []

    def take(message: Any) -> None:
        got.append(message)
        message.ack()
        ENDS[name](desk, consumer)

    consumer = desk.consume(take)
    desk.drain_until(lambda: polls.open)
    polls.open[0].forward()
    desk.drain_until(lambda: got)
    polls.end()
    settle(desk)
    assert desk.batches() == [3]
    assert (len(got), len(desk.keeper)) == (1, 0)
    # Not before a poll that was open then has ended.
    wait_until(lambda: desk.counts() == (2, 0))


def test_a_shutdown_amid_a_delivery_reads_the_polls_that_are_open(
    desk: ChannelHarness,
    polls: HeldPolls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A soft shutdown waits in a signal handler, on the thread that it has interrupted.
    monkeypatch.setattr(reception, "READ_GRACE", PATIENCE)
    got: list[Any] = []
    answered: list[bool] = []

    def take(message: Any) -> None:
        got.append(message)
        end_polls(desk.heartbeat)
        polls.open[0].forward()
        answered.append(desk.joined.reception.join())

    other = desk.client.create_queue(QueueName=f"{desk.name}-other")["QueueUrl"]
    desk.client.send_message(QueueUrl=other, MessageBody="{}")
    desk.publish("a")
    queues = [Queue(name, channel=desk.channel) for name in (desk.name, f"{desk.name}-other")]
    Consumer(desk.channel, queues, on_message=take).consume()
    desk.drain_until(lambda: len(polls.open) == 2)
    next(poll for poll in polls.open if poll.queue == desk.name).forward()
    desk.drain_until(lambda: got)
    assert desk.keeper.flush(PATIENCE)
    assert desk.batches() == [1, 1]
    assert (len(got), len(desk.keeper)) == (1, 1)
    assert answered == [True]


def test_the_last_polls_are_read_even_if_the_signal_interrupted_the_writing_of_a_log_line(
    desk: ChannelHarness,
    polls: HeldPolls,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reception, "READ_GRACE", PATIENCE)
    caplog.set_level(logging.INFO, logger="celery_sqs_heartbeat")
    desk.consume(lambda message: None)
    desk.drain_until(lambda: polls.open)
    with caplog.handler.lock:  # type: ignore[union-attr]
        end_polls(desk.heartbeat)
        polls.open[0].forward()
        assert desk.joined.reception.join()
    assert "receiving ends" in caplog.text


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        pytest.param(5.0, 18.5, id="the longest poll"),
        pytest.param(1_000.0, 3.0, id="a task without a pool, or a stall, outlasted the poll"),
    ],
)
def test_a_keeper_waits_beyond_the_end_of_a_poll_and_from_now_on_if_that_has_passed(
    monkeypatch: pytest.MonkeyPatch, now: float, seconds: float
) -> None:
    monkeypatch.setattr(clock, "now", lambda: now)
    waits: list[float] = []
    source = Source("q", lambda poll: [])
    polls = tuple(
        Poll(source=source, count=1, booked=1, sent_at=0.0, waits=wait) for wait in (1, 20)
    )
    monkeypatch.setattr(Receiver, "polls", polls)
    monkeypatch.setattr(Receiving, "join", lambda self, timeout: waits.append(timeout))
    unused: Any = Mock()
    receiving = reception.Reception(
        unused,
        sqs=unused,
        sender=unused,
        deliver=unused,
        keep=unused,
        most_waiting=0,
        concurrency=0,
    )
    for channel in (1, 2):
        receiving.consume(channel, ())
    receiving.end()
    assert not receiving.join()
    assert waits == [seconds] * 2

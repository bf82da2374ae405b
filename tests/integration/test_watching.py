"""Polls that are not answered in time, on a fake clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.observe.polled import DEAF_SECONDS, PolledQueues
from celery_sqs_heartbeat.testing import FakeClock
from tests.integration.test_transport import ChannelHarness
from tests.support.loop import FakePolls
from tests.support.proxy import FaultProxy

#: For how long a poll waits, in seconds.
WAIT = 20


class Watch:
    """A channel's open poll. The test drives its event loop and moves its clock."""

    def __init__(self, desk: ChannelHarness, fake: FakeClock) -> None:
        self.desk, self.clock = desk, fake
        self.polled = desk.heartbeat.polled = PolledQueues(fake)
        self.polls = FakePolls(desk.channel)
        desk.consume(lambda message: None)
        self.sent = self.polls.open()
        (self.poll,) = desk.heartbeat.open_polls
        assert self.poll.waits == WAIT

    def look(self, seconds: float, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(seconds)
            self.polls.loop.tick_later()

    @property
    def times_polled(self) -> int:
        return len(self.polls.sent)

    @property
    def unanswered(self) -> int:
        return self.polled.view()[0].unanswered


@pytest.fixture
def watch(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    # The visibility timeout is long enough for this wait.
    desk = ChannelHarness(proxy, options={"wait_time_seconds": WAIT}, visibility_timeout=120)
    # The keeper uses the real clock.
    fake = FakeClock(float(int(clock.now())))
    monkeypatch.setattr(clock, "now", fake)
    yield Watch(desk, fake)
    desk.channel.hub = None
    monkeypatch.undo()
    desk.close()


def test_a_poll_without_an_answer_is_given_up_ten_seconds_after_its_time_and_aborted_later(
    watch: Watch,
) -> None:
    watch.sent.send()
    watch.look(1.0, 30)
    assert not watch.poll.is_given_up
    watch.look(1.0)
    assert watch.poll.is_given_up
    assert watch.unanswered == 1
    watch.look(1.0, 30)
    assert not watch.sent.is_aborted()
    watch.look(1.0)
    assert watch.sent.is_aborted()
    # The queue was polled again once.
    assert watch.times_polled == 2
    assert watch.unanswered == 1


def test_a_poll_uses_no_connection_that_may_be_dead(watch: Watch) -> None:
    watch.sent.send()
    watch.look(1.0, 32)
    again = watch.polls.sent[1]
    again.send()
    assert [each.option("FRESH_CONNECT") for each in (watch.sent, again)] == [False, True]
    assert again.option("MAXAGE_CONN") == 10
    again.answer({"Messages": []})
    assert not watch.polled.any_unanswered


def test_time_during_which_a_task_blocks_the_event_loop_does_not_count(watch: Watch) -> None:
    watch.sent.send()
    watch.look(300.0, 10)
    assert not watch.poll.is_given_up


def test_a_poll_that_waits_for_a_free_connection_is_not_given_up(watch: Watch) -> None:
    watch.look(1.0, 100)
    assert not watch.poll.is_given_up
    watch.sent.send()
    watch.look(1.0, 30)
    assert not watch.poll.is_given_up
    watch.look(1.0)
    assert watch.poll.is_given_up


def test_a_worker_that_is_ending_polls_no_queue_again(watch: Watch) -> None:
    watch.sent.send()
    watch.desk.heartbeat.is_ending = True
    watch.look(1.0, 100)
    assert watch.times_polled == 1


def test_an_answer_to_a_poll_that_was_given_up_is_leased_and_starts_no_second_round_of_polls(
    watch: Watch,
) -> None:
    watch.sent.send()
    watch.look(1.0, 32)
    assert watch.times_polled == 2
    watch.sent.answer({"Messages": [{"MessageId": "a", "ReceiptHandle": "a-1", "Body": "{}"}]})
    watch.look(1.0, 2)
    assert watch.times_polled == 2
    assert watch.desk.keeper.find("a-1") is not None
    assert watch.poll not in watch.desk.heartbeat.open_polls
    assert not watch.polled.view()[0].is_deaf


def test_a_poll_that_is_given_up_has_a_successor_only_if_its_queue_has_no_other(
    watch: Watch,
) -> None:
    messages = [{"MessageId": f"m{n}", "ReceiptHandle": f"r{n}", "Body": "{}"} for n in range(10)]
    watch.sent.answer({"Messages": messages})
    watch.polls.loop.tick()
    # One waits for twenty seconds, and three beside it wait for one.
    for sent in watch.polls.sent:
        sent.send()
    assert watch.times_polled == 5
    watch.look(1.0, 15)
    assert watch.unanswered == 3
    assert watch.times_polled == 5
    watch.look(1.0, 20)
    assert watch.unanswered == 4
    assert watch.times_polled == 6


def test_an_error_is_no_answer(watch: Watch) -> None:
    watch.sent.send()
    watch.look(1.0, 5)
    watch.sent.fail(Exception("HTTP 503"))
    (queue,) = watch.polled.view()
    assert (queue.age, queue.unanswered) == (5.0, 1)


def test_a_queue_that_waits_for_a_prefetch_slot_is_not_deaf(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.sent.send()
    watch.polled.unanswered(watch.poll.queue, watch.clock() - DEAF_SECONDS)
    watch.look(1.0, 31)
    assert watch.polled.view()[0].is_deaf
    monkeypatch.setattr(watch.desk.channel.qos, "can_consume", lambda: False)
    watch.look(1.0)
    assert not watch.polled.view()[0].is_deaf
    assert watch.times_polled == 1

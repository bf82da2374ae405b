"""Polls that are not answered in time, on a clock of our own."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat import clock
from celery_sqs_heartbeat.polled import PolledQueues
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport.base import Poll
from tests.integration.test_transport import Desk
from tests.support.proxy import FaultProxy


class Watch:
    """A channel's open poll of 20 s, and a clock that the test moves."""

    def __init__(self, desk: Desk, fake: FakeClock) -> None:
        self.channel, self.clock = desk.channel, fake
        self.polled_again: list[int] = []
        self.channel.hub = SimpleNamespace(call_later=lambda *args: None)
        self.poll = Poll(desk.name, desk.url, fake(), 20)
        self.channel._heartbeat.polled = PolledQueues(fake)
        self.channel._heartbeat.polled.asked(desk.name, desk.url)
        self.watcher = self.channel._watch(self.poll, self.polled_again.append)

    def look(self, seconds: float, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(seconds)
            self.channel._look_at_polls()

    @property
    def unanswered(self) -> int:
        return int(self.channel._heartbeat.polled.view()[0].unanswered)


@pytest.fixture
def watch(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    desk, fake = Desk(proxy), FakeClock()
    monkeypatch.setattr(clock, "now", fake)
    yield Watch(desk, fake)
    desk.channel.hub = None
    monkeypatch.undo()
    desk.close()


def test_a_poll_without_an_answer_is_given_up_ten_seconds_after_its_time_and_aborted_later(
    watch: Watch,
) -> None:
    watch.watcher.prepared()
    watch.look(1.0, 30)
    assert not watch.poll.is_given_up
    watch.look(1.0)
    assert watch.poll.is_given_up
    assert watch.polled_again == [0]
    assert watch.unanswered == 1
    watch.look(1.0, 30)
    assert not watch.watcher.is_aborted()
    watch.look(1.0)
    assert watch.watcher.is_aborted()
    # The queue is polled again once.
    assert watch.polled_again == [0]
    assert watch.unanswered == 1


def test_the_time_in_which_the_event_loop_stands_in_a_task_does_not_count(watch: Watch) -> None:
    watch.watcher.prepared()
    watch.look(300.0, 10)
    assert not watch.poll.is_given_up


def test_a_poll_that_waits_for_a_free_connection_is_not_given_up(watch: Watch) -> None:
    watch.look(1.0, 100)
    assert not watch.poll.is_given_up
    watch.watcher.prepared()
    watch.look(1.0, 30)
    assert not watch.poll.is_given_up
    watch.look(1.0)
    assert watch.poll.is_given_up


def test_a_worker_that_is_ending_polls_no_queue_again(watch: Watch) -> None:
    watch.watcher.prepared()
    watch.channel._heartbeat.is_ending = True
    watch.look(1.0, 100)
    assert watch.polled_again == []


def test_an_answer_to_a_poll_that_was_given_up_is_leased_and_starts_no_second_round_of_polls(
    watch: Watch, proxy: FaultProxy
) -> None:
    watch.watcher.prepared()
    watch.look(1.0, 31)
    again: list[Any] = []
    watch.channel._go_on(watch.poll, again.append, watch.channel._on_answer(watch.poll, {}))
    assert again == []
    assert watch.poll not in watch.channel._polls
    assert not watch.channel._heartbeat.polled.view()[0].is_deaf


def test_an_error_is_no_answer_and_no_silence(watch: Watch) -> None:
    watch.watcher.prepared()
    watch.look(1.0, 5)
    # kombu's for a 5xx answer.
    assert watch.channel._on_answer(watch.poll, []) == 0
    (queue,) = watch.channel._heartbeat.polled.view()
    assert (queue.age, queue.unanswered) == (5.0, 0)


def test_a_queue_that_waits_for_a_prefetch_slot_is_not_deaf(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.watcher.prepared()
    watch.channel._active_queues.append(watch.poll.queue)
    polled = watch.channel._heartbeat.polled
    polled.unanswered(watch.poll.queue)
    watch.look(1.0, 31)
    assert polled.view()[0].is_deaf
    monkeypatch.setattr(watch.channel.qos, "can_consume", lambda: False)
    watch.channel._schedule_queue(watch.poll.queue)
    assert not polled.view()[0].is_deaf

"""The algorithms of the benchmark `extension-calls`, on small traces made by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest

from benchmarks.extension_calls.dotnet import DOTNET, DotNet
from benchmarks.extension_calls.ours import ours
from benchmarks.extension_calls.pubsub import PUBSUB, AckTimes, PubSub
from benchmarks.extension_calls.queue import Held, Queue
from benchmarks.extension_calls.timers import MASSTRANSIT, SQS_CONSUMER, TASKIQ
from benchmarks.extension_calls.trace import (
    MEAN_SECONDS,
    Arrival,
    Window,
    bound,
    draw,
    held_seconds,
    poll_start,
)
from benchmarks.extension_calls.ways import Way, play
from celery_sqs_heartbeat.testing import FakeClock

#: A call arrives half of its round trip after it was sent.
ARRIVES = 0.01


class Recording(Queue):
    """A queue that remembers when each call was sent, for how many messages and with what."""

    def __init__(self, clock: FakeClock, timeout: int) -> None:
        super().__init__(clock, timeout, Window(0, 1e9))
        self.sent: list[tuple[float, int, float]] = []

    def extend(
        self,
        messages: Sequence[Held],
        timeout: float,
        answered: Callable[[], None] | None = None,
    ) -> None:
        self.sent.append((round(self.clock(), 2), len(messages), timeout))
        super().extend(messages, timeout, answered)


def sent(way: Way, *arrivals: tuple[float, float], timeout: int = 30, until: float) -> Recording:
    """Play messages, each given as its receive and its end, from 0 on."""
    clock = FakeClock()
    queue = Recording(clock, timeout)
    extending = way.new(queue)

    def begin(arrival: Arrival) -> None:
        message = queue.receive(arrival)
        extending.received(message)
        clock.at(arrival.ends_at, functools.partial(end, message))

    def end(message: Held) -> None:
        queue.end(message)
        extending.ended(message)

    for start, ends_at in arrivals:
        clock.at(start, functools.partial(begin, Arrival(start, start, ends_at)))
    clock.advance(until)
    return queue


def test_the_bound_of_a_message_of_100_s_extended_every_20_s_is_half_a_call() -> None:
    held = held_seconds([Arrival(0, 0, 100)], Window(0, 1000))
    assert bound(held, every=20) == 0.5


def test_only_the_seconds_in_the_window_are_held() -> None:
    trace = [Arrival(0, 0, 100), Arrival(150, 150, 300), Arrival(400, 400, 500)]
    assert held_seconds(trace, Window(50, 200)) == 50 + 50


@pytest.mark.parametrize(
    ("received_at", "polled_at"), [(103.0, 100.0), (110.0, 110.0), (127.5, 120.0)]
)
def test_polls_of_10_s_follow_one_another_from_the_last_answer(
    received_at: float, polled_at: float
) -> None:
    assert poll_start(100.0, received_at) == polled_at


def test_a_trace_is_the_same_for_the_same_seed_and_has_the_mean_number_in_flight() -> None:
    trace = draw(100, 1000, seed=1)
    assert trace == draw(100, 1000, seed=1) != draw(100, 1000, seed=2)
    assert held_seconds(trace, Window(0, 1000)) / 1000 == pytest.approx(100, rel=0.15)
    durations = [each.ends_at - each.received_at for each in trace if each.received_at > 0]
    assert sum(durations) / len(durations) == pytest.approx(MEAN_SECONDS, rel=0.2)


def test_a_queue_counts_calls_in_the_window_and_the_time_left_when_they_arrive() -> None:
    clock = FakeClock()
    queue = Queue(clock, 30, Window(10, 1000))
    message = queue.receive(Arrival(0, 0, 100))
    for at in (5, 28, 50):
        clock.at(at, lambda: queue.extend([message], 30))
    clock.advance(60)
    assert (queue.tally.calls, queue.tally.extensions, queue.tally.late) == (2, 2, 0)
    assert queue.tally.least_left == pytest.approx(5 + ARRIVES + 30 - 28 - ARRIVES)


def test_a_message_that_no_one_extends_is_lost() -> None:
    idle = Way("idle", lambda timeout: timeout, lambda queue: Idle())
    trace = [Arrival(0, 0, 29), Arrival(0, 0, 31)]
    tally = play(idle, trace, Window(0, 100), 30)
    assert (tally.calls, tally.ended, tally.lapsed) == (0, 2, 1)


class Idle:
    """Extends nothing."""

    def received(self, message: Held) -> None: ...

    def ended(self, message: Held) -> None: ...


def test_ours_extends_with_a_third_left_and_fills_the_call_with_what_is_due_next() -> None:
    queue = sent(ours(), (0, 50), (7, 50), until=60)
    assert queue.sent == [(20, 2, 30), (40, 2, 30)]
    assert queue.tally.least_left == pytest.approx(10 - ARRIVES)


def test_ours_counts_from_the_start_of_the_poll() -> None:
    trace = [Arrival(0, 8, 25)]
    tally = play(ours(), trace, Window(0, 100), 30)
    # At 20 s, although 18 s are left.
    assert tally.least_left == pytest.approx(18 - ARRIVES)


def test_ours_has_another_threshold_if_asked() -> None:
    assert sent(ours(5), (0, 30), until=60).sent == [(25, 1, 30)]
    assert ours(5).longest(30) == 25


def test_dotnet_extends_in_batches_of_ten_what_has_five_seconds_left() -> None:
    queue = sent(DOTNET, *[(0, 40)] * 12, (4, 40), until=29)
    # A scan each second; the next begins after the answer of the last.
    assert queue.sent == [(25, 10, 30), (25, 2, 30)]


def test_dotnet_does_not_fill_up_a_call_with_what_is_due_next() -> None:
    queue = sent(DOTNET, (0, 40), (0.6, 40), (5, 40), until=40)
    assert queue.sent == [(25, 1, 30), (26.02, 1, 30), (30.04, 1, 30)]


def test_dotnets_loop_ends_with_the_last_message_and_begins_with_the_next() -> None:
    queue = sent(DOTNET, (0, 2), (10.5, 100), until=40)
    assert queue.sent == [(35.5, 1, 30)]
    assert isinstance(DOTNET.new(queue), DotNet)


def test_sqs_consumer_extends_each_message_by_its_own_call() -> None:
    queue = sent(SQS_CONSUMER, (0, 50), (1, 50), until=60)
    assert queue.sent == [(20, 1, 30), (21, 1, 30), (40, 1, 30), (41, 1, 30)]


def test_masstransit_extends_after_seven_tenths_and_asks_for_a_minute_at_most() -> None:
    assert sent(MASSTRANSIT, (0, 50), until=60).sent == [(21, 1, 30), (42.02, 1, 30)]
    queue = sent(MASSTRANSIT, (0, 150), timeout=120, until=160)
    assert queue.sent == [(84, 1, 60), (126.02, 1, 60)]


def test_taskiq_extends_at_half_of_the_timeout_and_at_most_a_hundred_times() -> None:
    queue = sent(TASKIQ, (0, 2_000), until=2_100)
    assert queue.sent[0] == (15, 1, 30)
    assert len(queue.sent) == 100
    assert queue.tally.lapsed == 1


def test_pubsub_extends_everything_in_each_pass_in_calls_for_ten() -> None:
    clock = FakeClock()
    queue = Recording(clock, 30)
    leaser = PubSub(queue)
    for number in range(12):
        leaser.received(Held(number, Arrival(0, 0, 99), 30))
    clock.advance(30)
    passes = [size for _, size, _ in queue.sent]
    assert passes == [10, 2] * (len(passes) // 2) != []
    assert PUBSUB.longest(30) == pytest.approx(27)


def test_pubsubs_deadline_is_the_99th_percentile_of_run_times_up_to_the_timeout() -> None:
    times = AckTimes(most=120)
    assert times.deadline() == 10
    times.add(45.7)
    assert times.deadline() == 45
    # It waits for twice as many.
    times.add(70)
    assert times.deadline() == 45
    times.add(70)
    assert times.deadline() == 70
    for _ in range(4):
        times.add(5_000)
    assert times.deadline() == 120


def test_pubsubs_deadline_leaves_out_one_time_in_a_hundred() -> None:
    times = AckTimes(most=600)
    times.add(10)
    times.deadline()
    for seconds in range(1, 101):
        times.add(100 + seconds)
    assert times.deadline() == 199

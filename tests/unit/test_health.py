"""The keeper's own health: a dead thread and a late one are reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.waiting import wait_until

#: Due for extension a tenth of a second after each extension.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)
QUEUE = "https://sqs/1/q"
MESSAGE = {"MessageId": "a", "ReceiptHandle": "a-1"}
#: How late a tick may be that comes before any threshold, at the default interval.
LIMIT = 3.0


class Once:
    """Does something once, on the thread of that name, after it is armed."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._thread: str | None = None

    @property
    def is_done(self) -> bool:
        return self._thread is None

    def arm(self, thread: str) -> None:
        self._thread = thread

    def __call__(self) -> None:
        if threading.current_thread().name == self._thread:
            self._thread = None
            self._act()


class CountingSqs:
    """Confirms every call and counts them."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None
        self.sent = 0

    def send(self, call: Call, may_send: object) -> Sequence[Outcome]:
        self.before()
        self.sent += 1
        return [Outcome.DONE] * len(call.entries)


@pytest.fixture
def die() -> Once:
    def exit_thread() -> None:
        raise SystemExit("on purpose")

    return Once(exit_thread)


@pytest.fixture
def new_keeper() -> Iterator[Callable[..., ThreadKeeper]]:
    keepers: list[ThreadKeeper] = []

    def make(sqs: CountingSqs, **options: Any) -> ThreadKeeper:
        keepers.append(ThreadKeeper(sqs, terms=EAGER, **options))
        return keepers[-1]

    yield make
    for keeper in keepers:
        keeper.stop()


@pytest.mark.parametrize("where", ["clock", "dispatcher"])
def test_a_thread_that_dies_says_so_and_is_not_replaced(
    new_keeper: Callable[..., ThreadKeeper],
    die: Once,
    where: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def now() -> float:
        die()
        return clock.now()

    def dispatch(*call: Any) -> None:
        die()
        threads.dispatch(*call)

    sqs = CountingSqs()
    threads = ThreadDispatcher(sqs, 1)
    options = {
        "clock": {"clock": now},
        "dispatcher": {
            "dispatcher": SimpleNamespace(
                dispatch=dispatch, give_up=threads.give_up, close=threads.close
            )
        },
    }
    keeper = new_keeper(sqs, **options[where])
    keeper.start()
    keeper.receive(QUEUE, MESSAGE)
    wait_until(lambda: sqs.sent)
    die.arm("sqs-heartbeat")
    wait_until(lambda: not keeper.health.alive)
    assert "the keeper's thread has died, and extends no more leases" in caplog.text
    assert "SystemExit: on purpose" in caplog.text
    keeper.start()
    assert not keeper.health.alive


# Python reports every thread that an error ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("where", ["call", "observer"])
def test_a_call_that_ends_its_thread_still_gets_a_result(
    new_keeper: Callable[..., ThreadKeeper], die: Once, where: str
) -> None:
    sqs = CountingSqs()
    if where == "call":
        sqs.before = die
    keeper = new_keeper(sqs, **({"observers": [lambda _: die()]} if where == "observer" else {}))
    keeper.start()
    keeper.receive(QUEUE, MESSAGE)
    die.arm("sqs-heartbeat-call-1")
    wait_until(lambda: die.is_done)
    sent = sqs.sent
    wait_until(lambda: sqs.sent > sent + 3)
    assert keeper.health.alive


def test_a_stopped_thread_is_neither_alive_nor_late(
    new_keeper: Callable[..., ThreadKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = new_keeper(CountingSqs())
    assert keeper.health == KeeperHealth()
    keeper.start()
    assert keeper.health.alive
    keeper.stop()
    health = keeper.health
    assert (health.alive, health.late) == (False, False)
    # It may have logged that the machine stalled.
    assert not [line for line in caplog.messages if "thread" in line]


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def told() -> list[float]:
    """The delays that were reported, in seconds."""
    return []


class Stepped(ThreadKeeper):
    """A keeper on a clock that the test moves, whose steps the test makes, until it stops."""

    def __init__(self, clock: FakeClock, step: Callable[[Stepped], float], **options: Any) -> None:
        super().__init__(CountingSqs(), clock=clock, **options)
        self._step = step

    def step(self) -> float:
        with self.reading():
            return self._step(self)

    def run(self, on_late: Callable[[float], None]) -> None:
        """Make all steps."""
        self.start(on_late)
        wait_until(lambda: not self.health.alive)


def test_a_late_tick_shows_at_once_and_is_reported_when_it_ends(
    fake_clock: FakeClock, told: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    late: list[bool] = []

    def step(keeper: Stepped) -> float:
        for seconds in (LIMIT, 3):
            fake_clock.advance(seconds)
            late.append(keeper.health.late)
        assert keeper.health.last_tick_age == LIMIT + 3
        keeper.stop()
        return fake_clock()

    keeper = Stepped(fake_clock, step)
    keeper.run(told.append)
    assert late == [False, True]
    assert told == [LIMIT + 3]
    assert "the keeper was late: its last tick took 6.0 s" in caplog.text
    assert not keeper.health.late


def test_a_thread_that_sleeps_for_long_is_not_late(
    fake_clock: FakeClock, told: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[bool] = []

    def sleep(bell: AutoResetEvent, timeout: float) -> bool:
        assert timeout == 3600
        for seconds in (timeout + LIMIT, 1):
            fake_clock.advance(seconds)
            late.append(keeper.health.late)
        keeper.stop()
        return True

    monkeypatch.setattr(AutoResetEvent, "wait", sleep)
    keeper = Stepped(fake_clock, lambda keeper: fake_clock() + 3600)
    keeper.run(told.append)
    assert late == [False, True]


@pytest.mark.parametrize(
    ("thresholds", "options", "limit"),
    [
        ([], {}, 3.0),
        ([], {"interval": 0.1}, 1.0),
        ([20, 10], {}, 10.0),
        ([0.3], {}, 1.0),
    ],
)
def test_a_tick_may_be_late_by_the_smallest_threshold(
    thresholds: list[float],
    options: dict[str, float],
    limit: float,
    fake_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its thread never begins its first tick.
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    keeper = ThreadKeeper(CountingSqs(), clock=fake_clock, **options)  # type: ignore[arg-type]
    keeper.start()
    for number, threshold in enumerate(thresholds):
        message = {"MessageId": f"m{number}", "ReceiptHandle": f"h{number}"}
        keeper.receive(QUEUE, message, terms=LeaseTerms(visibility_timeout=30, threshold=threshold))
    fake_clock.advance(limit)
    assert not keeper.health.late
    fake_clock.advance(0.01)
    assert keeper.health.late


@pytest.mark.parametrize(
    ("interval", "overslept", "is_reported"),
    [(0.1, 0.9, False), (0.1, 1.1, True), (5.0, 4.0, False), (5.0, 3600.0, True)],
)
def test_a_stalled_process_reports_the_standstill(
    fake_clock: FakeClock,
    told: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    interval: float,
    overslept: float,
    is_reported: bool,
) -> None:
    def sleep(bell: AutoResetEvent, timeout: float) -> bool:
        fake_clock.advance(timeout + overslept)
        keeper.stop()
        return False

    monkeypatch.setattr(AutoResetEvent, "wait", sleep)
    keeper = Stepped(fake_clock, lambda keeper: fake_clock() + interval, interval=interval)
    keeper.run(told.append)
    assert keeper.health.standstills == is_reported
    assert told == ([pytest.approx(overslept)] if is_reported else [])
    assert (f"the process did not run for {overslept:.1f} s" in caplog.text) is is_reported


def test_a_long_step_does_not_count_as_a_standstill(
    fake_clock: FakeClock, told: list[float]
) -> None:
    began = fake_clock()

    def step(keeper: Stepped) -> float:
        fake_clock.advance(60)
        if fake_clock() == began + 120:
            keeper.stop()
        return fake_clock()

    keeper = Stepped(fake_clock, step)
    keeper.run(told.append)
    assert fake_clock() == began + 120
    assert keeper.health.standstills == 0

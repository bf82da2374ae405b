"""The keeper's own health: a dead thread is replaced, a late one is reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.auto_reset_event import AutoResetEvent
from celery_sqs_heartbeat.keeper import running
from celery_sqs_heartbeat.keeper import watchdog as watchdog_module
from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.keeper.tick_thread import TickThread
from celery_sqs_heartbeat.keeper.watchdog import Watchdog
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.held import HeldClock
from tests.support.waiting import PATIENCE, wait_until

#: Due for extension a tenth of a second after each extension.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)
QUEUE = "https://sqs/1/q"
MESSAGE = {"MessageId": "a", "ReceiptHandle": "a-1"}
LIMIT = 5.0


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

    def send(self, call: Call) -> Sequence[Outcome]:
        self.before()
        self.sent += 1
        return [Outcome.DONE] * len(call.entries)


@pytest.fixture
def die() -> Once:
    def exit_thread() -> None:
        raise SystemExit("on purpose")

    return Once(exit_thread)


@pytest.fixture
def new_keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ThreadKeeper]]:
    monkeypatch.setattr(watchdog_module, "WATCH_SECONDS", 0.02)
    keepers: list[ThreadKeeper] = []

    def make(sqs: CountingSqs, **options: Any) -> ThreadKeeper:
        keepers.append(ThreadKeeper(sqs, terms=EAGER, **options))
        return keepers[-1]

    yield make
    for keeper in keepers:
        keeper.stop()


#: Python reports every thread that an error ends.
DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.mark.parametrize("where", ["clock", "dispatcher"])
def test_a_dead_thread_is_replaced_and_its_leases_are_kept(
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
    wait_until(lambda: keeper.health.replaced)
    assert "the keeper's thread had died of SystemExit('on purpose')" in caplog.text
    sent = sqs.sent
    wait_until(lambda: sqs.sent > sent + 3)
    health = keeper.health
    assert (health.alive, health.late, health.replaced) == (True, False, 1)
    assert len(keeper) == 1


# Python reports every thread that an error ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("where", ["call", "observer"])
def test_a_call_that_ends_its_thread_still_gets_a_result(
    new_keeper: Callable[..., ThreadKeeper], die: Once, where: str
) -> None:
    sqs = CountingSqs()
    if where == "call":
        sqs.before = die
    keeper = new_keeper(sqs, **({"observer": lambda _: die()} if where == "observer" else {}))
    keeper.start()
    keeper.receive(QUEUE, MESSAGE)
    die.arm("sqs-heartbeat-call-1")
    wait_until(lambda: die.is_done)
    sent = sqs.sent
    wait_until(lambda: sqs.sent > sent + 3)
    assert keeper.health.replaced == 0


def test_a_stopped_thread_is_not_replaced(
    new_keeper: Callable[..., ThreadKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = new_keeper(CountingSqs())
    assert keeper.health == KeeperHealth()
    keeper.start()
    assert keeper.health.alive
    keeper.stop()
    health = keeper.health
    assert (health.alive, health.late, health.replaced) == (False, False, 0)
    # It may have logged that the machine stalled.
    assert not [line for line in caplog.messages if "thread" in line]


def test_a_thread_that_was_stopped_is_not_missed() -> None:
    revived: list[str] = []
    rounds = TickThread(lambda: clock.now() + 1, 1.0, clock.now, lambda seconds: None)
    watchdog = Watchdog(
        rounds, lambda: bool(revived.append("again")), lambda: LIMIT, clock.now, print
    )
    rounds.start()
    rounds.stop()
    rounds.join(PATIENCE)
    assert not rounds.is_alive
    watchdog.check()
    assert revived == []


@DIES
def test_a_keeper_that_is_stopped_while_its_watchdog_checks_stays_stopped(
    new_keeper: Callable[..., ThreadKeeper], die: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    revived: list[bool] = []

    def interfering(rounds: TickThread, revive: Callable[[], bool], *others: Any) -> Watchdog:
        """A watchdog that is too late: its keeper is stopped just before it acts."""

        def stop_first() -> bool:
            keeper.stop(0)
            revived.append(revive())
            return revived[-1]

        return Watchdog(rounds, stop_first, *others)

    monkeypatch.setattr(running, "Watchdog", interfering)
    sqs = CountingSqs()
    keeper = new_keeper(sqs, observer=lambda _: die())
    keeper.start()
    die.arm("sqs-heartbeat")
    keeper.receive(QUEUE, MESSAGE)
    wait_until(lambda: revived)
    assert revived == [False]
    assert not keeper.health.alive


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Threads count as started but do not run. The test may do their work."""
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: jobs.append(thread.run))
    return jobs


@pytest.fixture
def rounds(fake_clock: FakeClock, threads: list[Callable[[], None]]) -> TickThread:
    """A thread whose tick begins when the test starts it, and never ends."""
    return TickThread(fake_clock, 1.0, fake_clock, lambda seconds: None)


@pytest.fixture
def told() -> list[float]:
    """The delays that the watchdog has reported, in seconds."""
    return []


@pytest.fixture
def watchdog(rounds: TickThread, fake_clock: FakeClock, told: list[float]) -> Watchdog:
    return Watchdog(rounds, lambda: True, lambda: LIMIT, fake_clock, told.append)


def test_a_late_thread_is_reported_once_per_episode(
    watchdog: Watchdog,
    rounds: TickThread,
    fake_clock: FakeClock,
    told: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for episode in (1, 2):
        rounds.start()
        fake_clock.advance(LIMIT)
        watchdog.check()
        assert not watchdog.health.late
        for _ in range(3):
            fake_clock.advance(1)
            watchdog.check()
            assert watchdog.health.late
        assert watchdog.health.last_tick_age == LIMIT + 3
        rounds.start()
        for _ in range(2):
            watchdog.check()
            assert not watchdog.health.late
        assert caplog.text.count("the keeper is late: its last tick began 6.0 s ago") == episode
        assert caplog.text.count("on time again, after 8.0 s") == episode
        assert told == [LIMIT + 1] * episode


def test_a_thread_that_sleeps_for_long_is_not_late(
    fake_clock: FakeClock, threads: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[bool] = []

    def sleep(bell: AutoResetEvent, timeout: float) -> bool:
        assert timeout == 3600
        for seconds in (timeout + LIMIT, 1):
            fake_clock.advance(seconds)
            late.append(watchdog.health.late)
        rounds.stop()
        return True

    monkeypatch.setattr(AutoResetEvent, "wait", sleep)
    rounds = TickThread(lambda: fake_clock() + 3600, 1.0, fake_clock, lambda seconds: None)
    watchdog = Watchdog(rounds, lambda: True, lambda: LIMIT, fake_clock, lambda seconds: None)
    rounds.start()
    threads[0]()
    assert late == [False, True]


@pytest.mark.parametrize(
    ("thresholds", "options", "limit"),
    [
        ([], {}, 3.0),
        ([], {"interval": 0.1}, 1.0),
        ([20, 10], {}, 10.0),
        ([0.3], {}, 1.0),
        ([10], {"late_after": 2.5}, 2.5),
    ],
)
def test_a_tick_may_be_late_by_the_smallest_threshold(
    thresholds: list[float],
    options: dict[str, float],
    limit: float,
    fake_clock: FakeClock,
    threads: list[Callable[[], None]],
) -> None:
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
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    threads: list[Callable[[], None]],
    interval: float,
    overslept: float,
    is_reported: bool,
) -> None:
    def sleep(bell: AutoResetEvent, timeout: float) -> bool:
        fake_clock.advance(timeout + overslept)
        rounds.stop()
        return False

    monkeypatch.setattr(AutoResetEvent, "wait", sleep)
    told: list[float] = []
    rounds = TickThread(lambda: fake_clock() + interval, interval, fake_clock, told.append)
    rounds.start()
    threads[0]()
    assert rounds.standstills == is_reported
    assert told == ([pytest.approx(overslept)] if is_reported else [])
    assert (f"the process did not run for {overslept:.1f} s" in caplog.text) is is_reported


def test_a_long_step_does_not_count_as_a_standstill(
    fake_clock: FakeClock, threads: list[Callable[[], None]]
) -> None:
    began = fake_clock()

    def step() -> float:
        fake_clock.advance(60)
        if fake_clock() == began + 120:
            rounds.stop()
        return fake_clock()

    rounds = TickThread(step, 1.0, fake_clock, lambda seconds: None)
    rounds.start()
    threads[0]()
    assert fake_clock() == began + 120
    assert rounds.standstills == 0


def test_a_forked_child_touches_nothing(new_keeper: Callable[..., ThreadKeeper]) -> None:
    held = HeldClock()
    keeper = new_keeper(CountingSqs(), clock=held)
    keeper.start()
    with held.amid_a_change(keeper):
        child = os.fork()
        if child == 0:
            # The thread that has the lock does not exist here: nothing may wait for the lock.
            threading.Timer(PATIENCE, os._exit, (2,)).start()
            seen: list[KeeperHealth] = []
            worker = threading.Thread(target=lambda: seen.append(keeper.health))
            worker.start()
            worker.join()
            os._exit(seen != [KeeperHealth()])
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert keeper.health.alive

"""The keeper: makes the calls that its book plans, on time, and survives what fails in them.

No error of SQS, of an observer or of the system ends it. If its thread dies or is late, it says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.keeper import thread_keeper
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import (
    MOST_HANGING,
    Call,
    Event,
    EventKind,
    KeeperHealth,
    Outcome,
)
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.held import HeldClock
from tests.support.waiting import PATIENCE, wait_until

#: Due for extension a tenth of a second after the receive.
EAGER = LeaseTerms(visibility_timeout=30, threshold=29.9)
QUEUE = "https://sqs/1/q"


class ScriptedSqs:
    """Answers calls as `answer` says and lets tests wait for what was sent."""

    def __init__(self) -> None:
        self.answer: Callable[[Call], Sequence[Outcome]] = confirm
        self.sent: list[tuple[str, str]] = []

    def send(self, call: Call, may_send: object) -> Sequence[Outcome]:
        self.sent += [(each.action.value, each.receipt_handle) for each in call.entries]
        return self.answer(call)

    def wait_for(self, action: str, handle: str, times: int = 1) -> None:
        wait_until(lambda: self.sent.count((action, handle)) >= times, tell=lambda: self.sent)


def confirm(call: Call) -> Sequence[Outcome]:
    return [Outcome.DONE] * len(call.entries)


def all_are(outcome: Outcome) -> Callable[[Call], Sequence[Outcome]]:
    return lambda call: [outcome] * len(call.entries)


def message(name: str) -> dict[str, Any]:
    return {"MessageId": name, "ReceiptHandle": name}


@pytest.fixture
def sqs() -> ScriptedSqs:
    return ScriptedSqs()


@pytest.fixture
def new_keeper(sqs: ScriptedSqs) -> Iterator[Callable[..., ThreadKeeper]]:
    """Makes keepers, and ends them after the test."""
    keepers: list[ThreadKeeper] = []

    def make(**options: Any) -> ThreadKeeper:
        keepers.append(ThreadKeeper(sqs, **{"terms": EAGER, **options}))
        return keepers[-1]

    yield make
    for keeper in keepers:
        keeper.stop(0.1)


NewKeeper = Callable[..., ThreadKeeper]


def test_a_keeper_works_from_its_start_to_its_stop_however_often_they_are_called(
    new_keeper: NewKeeper, sqs: ScriptedSqs
) -> None:
    reported: list[str] = []
    keeper = new_keeper(observers=[lambda event: reported.append(event.kind.value)])
    assert keeper.stop()
    assert keeper.health == KeeperHealth()
    assert keeper.receive(QUEUE, message("a")) is ReceivedAs.NEW
    for _ in range(2):
        keeper.start()
        assert keeper.health.alive
    sqs.wait_for("extend", "a")
    keeper.done("a")
    assert keeper.flush(PATIENCE)
    assert sqs.sent[-1] == ("delete", "a")
    keeper.receive(QUEUE, message("b"), terms=LeaseTerms.of(30))
    keeper.note_start("b")
    for _ in range(2):
        keeper.stop()
        assert (keeper.health.alive, keeper.health.late, len(keeper)) == (False, False, 0)
    # The process exits after the stop.
    assert reported[-2:] == ["message-received", "task-started"]
    assert not keeper.release("b")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda call: 1 / 0, id="it raises"),
        pytest.param(lambda call: [], id="it returns too little"),
        pytest.param(lambda call: [Outcome.UNKNOWN] * 99, id="it returns too much"),
    ],
)
def test_a_faulty_adapter_does_not_end_the_keeper(
    new_keeper: NewKeeper, sqs: ScriptedSqs, fault: Any
) -> None:
    keeper = new_keeper()
    keeper.start()
    sqs.answer = fault
    keeper.receive(QUEUE, message("a"))
    sqs.wait_for("extend", "a", times=2)
    sqs.answer = confirm
    keeper.done("a")
    assert keeper.flush(PATIENCE)


def test_a_faulty_observer_ends_neither_the_keeper_nor_keeps_others_from_an_event(
    new_keeper: NewKeeper, sqs: ScriptedSqs, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[EventKind] = []
    keeper = new_keeper(observers=[lambda event: 1 / 0, lambda event: seen.append(event.kind)])
    keeper.start()
    for name in ("a", "b"):
        keeper.receive(QUEUE, message(name))
        sqs.wait_for("extend", name)
    assert seen.count(EventKind.MESSAGE_RECEIVED) == 2
    assert "an observer failed on message-received" in caplog.text


def test_a_flush_retries_refused_deletes_at_once(
    new_keeper: NewKeeper, sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROBE_SECONDS", "MAX_REFUSED_DELETE_SECONDS"):
        monkeypatch.setattr(policy, name, 3_600.0)
    sqs.answer = all_are(Outcome.DENIED)
    keeper = new_keeper(terms=LeaseTerms.of(600))
    keeper.start()
    keeper.receive(QUEUE, message("a"))
    keeper.done("a")
    wait_until(lambda: (lease := keeper.find("a")) is not None and lease.attempts)
    sqs.answer = confirm
    assert keeper.flush(PATIENCE)


@pytest.mark.parametrize(
    ("count", "what", "more"),
    [(1, "1 message within 0 s: it becomes", ""), (103, "103 messages", "same for 3 more")],
)
def test_a_flush_that_takes_too_long_lists_what_is_not_confirmed(
    new_keeper: NewKeeper,
    sqs: ScriptedSqs,
    caplog: pytest.LogCaptureFixture,
    count: int,
    what: str,
    more: str,
) -> None:
    sqs.answer = all_are(Outcome.THROTTLED)
    keeper = new_keeper()
    keeper.start()
    for number in range(count):
        keeper.receive(QUEUE, message(f"m{number}"))
        keeper.release(f"m{number}")
    assert not keeper.flush(0)
    told = [f"release of {what}", f"the release of message m0 of {QUEUE}", more]
    assert all(each in caplog.text for each in told)
    assert caplog.text.count("the release of message") == min(count, 100)


def test_a_forked_child_leaves_the_parents_leases_alone_and_waits_for_no_lock(
    new_keeper: NewKeeper,
) -> None:
    held = HeldClock()
    keeper = new_keeper(clock=held, terms=LeaseTerms.of(600))
    keeper.start()
    keeper.receive(QUEUE, message("a"))

    def use() -> bool:
        before = threading.active_count()
        keeper.start()
        keeper.receive(QUEUE, message("b"))
        keeper.done("a")
        keeper.release("a")
        keeper.let_expire("a")
        assert (keeper.find("a"), keeper.owns("a"), keeper.snapshot()) == (None, True, ())
        assert keeper.health == KeeperHealth()
        assert threading.active_count() == before
        return keeper.flush() and keeper.stop()

    with held.amid_a_change(keeper):
        child = os.fork()
        if child == 0:
            # The thread that has the lock does not exist here: nothing may wait for the lock.
            threading.Timer(PATIENCE, os._exit, (2,)).start()
            used: list[bool] = []
            worker = threading.Thread(target=lambda: used.append(use()))
            worker.start()
            worker.join()
            os._exit(0 if used == [True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (len(keeper), keeper.health.alive) == (1, True)


def test_the_keeper_survives_when_no_thread_can_be_started(
    new_keeper: NewKeeper,
    sqs: ScriptedSqs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper, refused = new_keeper(), threading.Event()
    keeper.start()

    def refuse(thread: threading.Thread) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        keeper.receive(QUEUE, message("a"))
        assert refused.wait(PATIENCE)
    sqs.wait_for("extend", "a")
    assert "no thread for a call (can't start new thread)" in caplog.text


def test_a_stop_waits_for_events_that_are_being_reported(new_keeper: NewKeeper) -> None:
    # Those that are not reported by then reach no log or journal.
    reported: list[str] = []
    is_reporting = threading.Event()

    def observe(event: Event) -> None:
        is_reporting.set()
        time.sleep(0.1)
        reported.append(event.kind.value)

    keeper = new_keeper(terms=LeaseTerms.of(30), observers=[observe])
    keeper.start()
    keeper.receive(QUEUE, message("a"))
    keeper.done("a")
    assert is_reporting.wait(PATIENCE)
    keeper.stop()
    assert "message-deleted" in reported


def test_observers_that_stop_the_keeper_do_not_wait_for_each_other(
    new_keeper: NewKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_keeper, "_END_SECONDS", 10 * PATIENCE)
    meeting, stopped = threading.Barrier(2), threading.Semaphore(0)

    def observe(event: Event) -> None:
        if event.kind is EventKind.MESSAGE_DELETED:
            meeting.wait(PATIENCE)
            keeper.stop()
            stopped.release()

    keeper = new_keeper(terms=LeaseTerms.of(30), observers=[observe])
    keeper.start()
    # From two queues: each delete is a separate call on its own thread.
    for name in ("a", "b"):
        keeper.receive(f"{QUEUE}{name}", message(name))
        keeper.done(name)
    assert all(stopped.acquire(timeout=PATIENCE) for _ in range(2))


# -- Its steps -----------------------------------------------------------------------------------


class Stepped:
    """A keeper whose steps the test makes, without threads, and what it does in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.woken = FakeClock(1000.0), 0
        self.calls: list[tuple[Call, ApplyResults]] = []
        self.reported: list[str] = []
        dispatcher = SimpleNamespace(
            dispatch=lambda *call: self.calls.append(call), give_up=lambda call: True
        )
        self.keeper = ThreadKeeper(
            SimpleNamespace(),
            clock=self.clock,
            jitter=lambda: 0.0,
            observers=[lambda event: self.reported.append(event.kind.value)],
            dispatcher=dispatcher,
        )
        monkeypatch.setattr(AutoResetEvent, "set", lambda event: self._wake())
        self.keeper.step()

    def _wake(self) -> None:
        self.woken += 1

    def receive(self, *names: str, queue: str = QUEUE, **options: Any) -> None:
        for name in names:
            self.keeper.receive(queue, message(name), **options)

    def release(self, *names: str) -> int:
        """Release messages. Return how often the keeper has been woken."""
        for name in names:
            assert self.keeper.release(name, 0.0, "failed")
        return self.woken


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> Stepped:
    return Stepped(monkeypatch)


def test_a_receive_is_reported_in_the_next_step_and_wakes_no_thread(stepped: Stepped) -> None:
    stepped.receive("a", terms=LeaseTerms(visibility_timeout=15, threshold=20))
    lease = stepped.keeper.find("a")
    assert lease is not None
    # Otherwise each extension would be due at once.
    assert lease.terms.threshold == 5
    stepped.keeper.note_start("a")
    assert (stepped.woken, stepped.reported) == (0, [])
    stepped.keeper.step()
    assert stepped.reported == ["message-received", "task-started"]


def test_changes_wake_the_keeper_once_each_time_a_call_is_due(stepped: Stepped) -> None:
    stepped.receive(*"abcde")
    stepped.keeper.step()
    assert stepped.release("a") == 1
    stepped.keeper.step()
    # Those that come together wake it once, and all are made.
    with stepped.keeper.gathering():
        assert stepped.release("b", "c") == 1
    assert stepped.woken == 2
    stepped.keeper.step()
    with pytest.raises(ZeroDivisionError), stepped.keeper.gathering():
        stepped.release("d")
        raise ZeroDivisionError
    assert stepped.woken == 3
    stepped.keeper.step()
    assert stepped.release("e") == 4
    with stepped.keeper.gathering():
        pass
    assert stepped.woken == 4
    handles = [entry.receipt_handle for call, _ in stepped.calls for entry in call.entries]
    assert sorted(handles) == [*"abcd"]


def test_a_queue_whose_calls_hang_gets_no_more_of_them_and_the_others_do(stepped: Stepped) -> None:
    def hang(name: str, queue: str = QUEUE) -> None:
        stepped.receive(name, queue=queue, terms=LeaseTerms.of(30))
        stepped.release(name)
        for _ in range(2):
            stepped.keeper.step()
            # The call is given up.
            stepped.clock.advance(5)

    for number in range(MOST_HANGING + 2):
        hang(f"m{number}")
    assert stepped.keeper.health.hanging == len(stepped.calls) == MOST_HANGING
    hang("other", "https://other")
    assert stepped.calls[-1][0].queue_url == "https://other"
    # A call that returns makes room for another one.
    call, apply_results = stepped.calls[0]
    apply_results([Outcome.UNKNOWN] * len(call.entries))
    hang("last")
    assert stepped.calls[-1][0].queue_url == QUEUE


# -- Its health ----------------------------------------------------------------------------------


class Once:
    """Ends a thread once: the one of its name, which is none at first."""

    thread: str | None = None

    def __call__(self, *_: Any) -> float:
        if threading.current_thread().name == self.thread:
            self.thread = None
            raise SystemExit("on purpose")
        return clock.now()


def test_a_thread_that_dies_says_so_and_is_not_replaced(
    new_keeper: NewKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    die = Once()
    keeper = new_keeper(clock=die)
    keeper.start()
    die.thread = "sqs-heartbeat"
    keeper.receive(QUEUE, message("a"))
    wait_until(lambda: not keeper.health.alive)
    assert "the keeper's thread has died, and extends no more leases" in caplog.text
    assert "SystemExit: on purpose" in caplog.text
    keeper.start()
    assert not keeper.health.alive


# Python reports every thread that an error ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("where", ["call", "observer"])
def test_a_call_that_ends_its_thread_still_gets_a_result(
    new_keeper: NewKeeper, sqs: ScriptedSqs, where: str
) -> None:
    die = Once()
    die.thread = "sqs-heartbeat-call-1"
    if where == "call":
        sqs.answer = lambda call: die() and confirm(call)
    keeper = new_keeper(observers=[die] if where == "observer" else [])
    keeper.start()
    keeper.receive(QUEUE, message("a"))
    sqs.wait_for("extend", "a", times=3)
    assert (die.thread, keeper.health.alive) == (None, True)


@pytest.mark.parametrize(
    ("interval", "step", "overslept", "told", "said"),
    [
        pytest.param(1.0, 3.0, 0.0, [], "", id="a step may take three intervals"),
        pytest.param(1.0, 6.0, 0.0, [6.0], "its last tick took 6.0 s", id="and not more"),
        pytest.param(0.1, 0.0, 0.9, [], "", id="a wait may be late by a second"),
        pytest.param(0.1, 0.0, 1.1, [1.1], "did not run for 1.1 s", id="and not more"),
        pytest.param(5.0, 0.0, 4.0, [], "", id="or by an interval"),
        pytest.param(5.0, 0.0, 3600.0, [3600.0], "did not run for 3600.0 s", id="but no more"),
    ],
)
def test_a_late_tick_and_a_standstill_of_the_process_are_told_apart_and_reported(
    new_keeper: NewKeeper,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    interval: float,
    step: float,
    overslept: float,
    told: list[float],
    said: str,
) -> None:
    now, delays, late = FakeClock(), list[float](), list[bool]()

    def make_step(keeper: ThreadKeeper) -> float:
        now.advance(step)
        with keeper.reading():  # Its start has ended.
            late.append(keeper.health.late)
        assert keeper.health.last_tick_age == step
        return now() + interval

    def sleep(bell: AutoResetEvent, timeout: float) -> bool:
        assert timeout == pytest.approx(interval)
        assert not keeper.health.late
        now.advance(timeout + overslept)
        late.append(keeper.health.late)
        keeper.stop()
        return False

    monkeypatch.setattr(ThreadKeeper, "step", make_step)
    monkeypatch.setattr(AutoResetEvent, "wait", sleep)
    keeper = new_keeper(clock=now, interval=interval)
    keeper.start(delays.append)
    wait_until(lambda: not keeper.health.alive)
    assert delays == pytest.approx(told)
    assert keeper.health.standstills == (bool(told) and step == 0)
    assert late == [bool(told) and step > 0, bool(told) and step == 0]
    assert said in caplog.text
    assert bool(said) is bool(caplog.messages)


@pytest.mark.parametrize(
    ("thresholds", "interval", "limit"),
    [([], 1.0, 3.0), ([], 0.1, 1.0), ([20, 10], 1.0, 10.0), ([0.3], 1.0, 1.0)],
)
def test_a_tick_may_be_late_by_the_smallest_threshold(
    monkeypatch: pytest.MonkeyPatch, thresholds: list[float], interval: float, limit: float
) -> None:
    # Its thread never begins its first tick.
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    now = FakeClock()
    keeper = ThreadKeeper(ScriptedSqs(), clock=now, interval=interval)
    keeper.start()
    for number, threshold in enumerate(thresholds):
        terms = LeaseTerms(visibility_timeout=30, threshold=threshold)
        keeper.receive(QUEUE, message(f"m{number}"), terms=terms)
    now.advance(limit)
    assert (keeper.health.late, keeper.may_receive) == (False, True)
    now.advance(0.01)
    assert (keeper.health.late, keeper.may_receive) == (True, False)

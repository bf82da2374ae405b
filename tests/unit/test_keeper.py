"""The keeper's threads, with an SQS whose answers the test scripts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.common.threads import AutoResetEvent
from celery_sqs_heartbeat.keeper import thread_keeper
from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind, KeeperHealth
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
        self.answer: Callable[[Call], Sequence[Outcome]] = lambda call: (
            [Outcome.DONE] * len(call.entries)
        )
        self._sent: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def send(self, call: Call, may_send: object) -> Sequence[Outcome]:
        with self._changed:
            self._sent += [(e.action.value, e.receipt_handle) for e in call.entries]
            self._changed.notify_all()
        return self.answer(call)

    def wait_for(self, *sent: tuple[str, str], times: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: all(self._sent.count(each) >= times for each in sent), PATIENCE
            ), self._sent


@pytest.fixture
def sqs() -> ScriptedSqs:
    return ScriptedSqs()


@pytest.fixture
def keeper(sqs: ScriptedSqs) -> Iterator[ThreadKeeper]:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.start()
    yield keeper
    keeper.stop()


def message(name: str = "a", count: int = 1) -> dict[str, Any]:
    return {
        "MessageId": name,
        "ReceiptHandle": f"{name}-{count}",
        "Attributes": {"ApproximateReceiveCount": str(count)},
    }


def test_a_received_message_is_extended_and_then_deleted(
    keeper: ThreadKeeper, sqs: ScriptedSqs
) -> None:
    assert keeper.receive(QUEUE, message()) is ReceivedAs.NEW
    sqs.wait_for(("extend", "a-1"))
    assert len(keeper) == 1
    keeper.done("a-1")
    assert keeper.flush(PATIENCE)
    sqs.wait_for(("delete", "a-1"))
    assert len(keeper) == 0


def test_start_and_stop_may_be_called_again_and_again(sqs: ScriptedSqs) -> None:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.stop()
    for _ in range(2):
        keeper.start()
        assert keeper.health.alive
    keeper.receive(QUEUE, message())
    keeper.done("a-1")
    for _ in range(2):
        keeper.stop()
        assert not keeper.health.alive
        assert len(keeper) == 0


def test_leases_given_before_the_start_are_kept_from_then_on(sqs: ScriptedSqs) -> None:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.receive(QUEUE, message())
    keeper.start()
    sqs.wait_for(("extend", "a-1"))
    keeper.stop()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda call: 1 / 0, id="it raises"),
        pytest.param(lambda call: [], id="it returns too little"),
        pytest.param(lambda call: [Outcome.UNKNOWN] * 99, id="it returns too much"),
    ],
)
def test_a_faulty_adapter_does_not_end_the_keeper(
    keeper: ThreadKeeper, sqs: ScriptedSqs, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good, sqs.answer = sqs.answer, fault
    keeper.receive(QUEUE, message())
    sqs.wait_for(("extend", "a-1"), times=2)
    sqs.answer = good
    keeper.done("a-1")
    assert keeper.flush(PATIENCE)


def test_a_faulty_observer_ends_neither_the_keeper_nor_keeps_others_from_an_event(
    sqs: ScriptedSqs, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    seen: list[EventKind] = []
    keeper = ThreadKeeper(sqs, terms=EAGER, observers=[fail, lambda event: seen.append(event.kind)])
    keeper.start()
    try:
        for name in ("a", "b"):
            keeper.receive(QUEUE, message(name))
            sqs.wait_for(("extend", f"{name}-1"))
            keeper.done(f"{name}-1")
    finally:
        keeper.stop()
    assert seen.count(EventKind.MESSAGE_RECEIVED) == 2
    assert "an observer failed on message-received" in caplog.text


def test_several_calls_are_in_flight_when_one_connection_is_too_slow(
    keeper: ThreadKeeper, sqs: ScriptedSqs
) -> None:
    all_there = threading.Barrier(4)

    def answer(call: Call) -> Sequence[Outcome]:
        all_there.wait(PATIENCE)
        return [Outcome.DONE] * len(call.entries)

    sqs.answer = answer
    for number in range(40):
        keeper.receive(QUEUE, message(f"m{number}"))
    sqs.wait_for(*(("extend", f"m{number}-1") for number in range(40)))
    assert not all_there.broken


def test_the_keeper_wakes_early_for_an_earlier_due_time(sqs: ScriptedSqs) -> None:
    keeper = ThreadKeeper(sqs, terms=LeaseTerms.of(43_200), interval=3_600)
    keeper.start()
    keeper.receive(QUEUE, message("long"))
    keeper.receive(QUEUE, message("eager"), terms=EAGER)
    sqs.wait_for(("extend", "eager-1"))
    keeper.release("long-1")
    sqs.wait_for(("release", "long-1"))
    keeper.stop()


def test_a_flush_retries_refused_calls_at_once(
    keeper: ThreadKeeper, sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROBE_SECONDS", "MAX_REFUSED_DELETE_SECONDS"):
        monkeypatch.setattr(policy, name, 3_600.0)
    good, sqs.answer = sqs.answer, lambda call: [Outcome.DENIED] * len(call.entries)
    keeper.receive(QUEUE, message())
    keeper.done("a-1")
    wait_until(lambda: (lease := keeper.find("a-1")) is not None and lease.attempts)
    sqs.answer = good
    assert keeper.flush(PATIENCE)


def test_a_flush_that_takes_too_long_says_so(
    sqs: ScriptedSqs, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.answer = lambda call: [Outcome.UNKNOWN] * len(call.entries)
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.start()
    keeper.receive(QUEUE, message())
    keeper.done("a-1")
    assert not keeper.flush(0.1)
    assert "the delete or release of 1 message within 0.1 s: it becomes visible" in caplog.text
    assert f"the delete of message a of {QUEUE}, task None[None], is not confirmed" in caplog.text
    keeper.stop(0.1)


def test_a_flush_that_takes_too_long_counts_what_it_does_not_list(
    sqs: ScriptedSqs, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.answer = lambda call: [Outcome.THROTTLED] * len(call.entries)
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.start()
    for number in range(103):
        keeper.receive(QUEUE, message(f"m{number}"))
        keeper.release(f"m{number}-1")
    assert not keeper.flush(0)
    assert "the delete or release of 103 messages within 0 s: they become visible" in caplog.text
    assert caplog.text.count("the release of message") == 100
    assert "the same for 3 more messages" in caplog.text
    keeper.stop(0)


def test_a_forked_child_leaves_the_parents_leases_alone(sqs: ScriptedSqs) -> None:
    held = HeldClock()
    keeper = ThreadKeeper(sqs, terms=EAGER, clock=held)
    keeper.start()
    keeper.receive(QUEUE, message())
    with held.amid_a_change(keeper):
        child = os.fork()
        if child == 0:
            # The thread that has the lock does not exist here: nothing may wait for the lock.
            threading.Timer(PATIENCE, os._exit, (2,)).start()
            used: list[ThreadKeeper] = []
            worker = threading.Thread(target=lambda: used.append(_use(keeper)))
            worker.start()
            worker.join()
            os._exit(0 if used else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(keeper) == 1
    assert keeper.health.alive
    keeper.stop()


def test_a_keeper_starts_no_thread_in_a_forked_child(sqs: ScriptedSqs) -> None:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    child = os.fork()
    if child == 0:
        before = threading.active_count()
        keeper.start()
        os._exit(threading.active_count() - before)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _use(keeper: ThreadKeeper) -> ThreadKeeper:
    keeper.start()
    keeper.receive(QUEUE, message("b"))
    keeper.done("a-1")
    keeper.release("a-1")
    keeper.let_expire("a-1")
    assert keeper.find("a-1") is None
    assert keeper.owns("a-1")
    assert keeper.snapshot() == ()
    assert keeper.health == KeeperHealth()
    keeper.flush()
    keeper.stop()
    return keeper


def test_the_keeper_survives_when_no_thread_can_be_started(
    sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.start()
    refused = threading.Event()

    def refuse(thread: threading.Thread) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        keeper.receive(QUEUE, message())
        assert refused.wait(PATIENCE)
    sqs.wait_for(("extend", "a-1"))
    keeper.done("a-1")
    assert keeper.flush(PATIENCE)
    keeper.stop()
    assert "no thread for a call (can't start new thread)" in caplog.text


def test_a_stopped_keeper_has_forgotten_its_leases(sqs: ScriptedSqs) -> None:
    keeper = ThreadKeeper(sqs, terms=EAGER)
    keeper.start()
    keeper.receive(QUEUE, message())
    keeper.stop()
    assert not keeper.release("a-1")
    assert keeper.find("a-1") is None


def test_a_stop_waits_for_events_that_are_being_reported(sqs: ScriptedSqs) -> None:
    # The process exits after the stop. Events not reported by then reach no log or journal.
    reported: list[str] = []
    is_reporting = threading.Event()

    def observe(event: Event) -> None:
        is_reporting.set()
        time.sleep(0.1)
        reported.append(event.kind.value)

    keeper = ThreadKeeper(sqs, terms=LeaseTerms.of(30), observers=[observe])
    keeper.start()
    keeper.receive(QUEUE, message())
    keeper.done("a-1")
    assert is_reporting.wait(PATIENCE)
    keeper.stop()
    assert "message-deleted" in reported


def test_a_stop_reports_the_last_events(sqs: ScriptedSqs) -> None:
    reported: list[str] = []
    keeper = ThreadKeeper(
        sqs, terms=LeaseTerms.of(30), observers=[lambda event: reported.append(event.kind.value)]
    )
    keeper.start()
    keeper.receive(QUEUE, message())
    keeper.note_start("a-1")
    keeper.stop()
    assert reported == ["message-received", "task-started"]


def test_observers_that_stop_the_keeper_do_not_wait_for_each_other(
    sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_keeper, "_END_SECONDS", 10 * PATIENCE)
    meeting, stopped = threading.Barrier(2), threading.Semaphore(0)

    def observe(event: Event) -> None:
        if event.kind is EventKind.MESSAGE_DELETED:
            meeting.wait(PATIENCE)
            keeper.stop()
            stopped.release()

    keeper = ThreadKeeper(sqs, terms=LeaseTerms.of(30), observers=[observe])
    keeper.start()
    # From two queues: each delete is a separate call on its own thread.
    for name in ("a", "b"):
        keeper.receive(f"{QUEUE}{name}", message(name))
        keeper.done(f"{name}-1")
    assert stopped.acquire(timeout=PATIENCE)
    assert stopped.acquire(timeout=PATIENCE)


def test_a_receive_is_reported_in_the_next_tick_and_wakes_no_thread(
    sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    woken: list[str] = []
    monkeypatch.setattr(AutoResetEvent, "set", lambda event: woken.append("woken"))
    keeper = ThreadKeeper(sqs, observers=[lambda event: told.append(event.kind.value)])
    keeper.step()
    keeper.receive(QUEUE, message())
    keeper.note_start("a-1")
    assert woken == told == []
    keeper.step()
    assert told == ["message-received", "task-started"]
    keeper.release("a-1")
    assert woken == ["woken"]


def test_a_threshold_above_the_timeout_does_not_cause_endless_extensions() -> None:
    clock, sqs = FakeClock(), ScriptedSqs()
    calls: list[float] = []

    def answer_at_once(call: Call, settle: ApplyResults) -> None:
        calls.append(clock())
        settle(sqs.answer(call))

    at_once = SimpleNamespace(
        dispatch=answer_at_once, give_up=lambda call: True, close=lambda: None
    )
    keeper = ThreadKeeper(sqs, clock=clock, dispatcher=at_once)
    keeper.receive(QUEUE, message(), terms=LeaseTerms(visibility_timeout=15, threshold=20))
    for _ in range(60):
        keeper.step()
        clock.advance(1.0)
    assert calls == [10, 20, 30, 40, 50]

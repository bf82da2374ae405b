"""Changes to the book that come together wake the engine only once, after the last one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.keeper.lease_engine import LeaseEngine
from celery_sqs_heartbeat.leases.calls import Call, Outcome
from celery_sqs_heartbeat.leases.events import MOST_HANGING
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.testing import FakeClock

TERMS = LeaseTerms(visibility_timeout=30, threshold=10)
NAMES = ("a", "b", "c")


class Collects:
    """Makes no calls, but keeps them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[ApplyResults] = []

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        self.calls.append(call)
        self.answers.append(settle)

    def give_up(self, call: Call) -> bool:
        return True

    def close(self) -> None:
        self.calls.clear()


class Awaited:
    """An engine, and how often it was woken."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.woken = 0
        self.dispatcher = Collects()
        self.engine = LeaseEngine(
            SimpleNamespace(),
            clock=self.clock,
            jitter=lambda: 0.0,
            observers=[],
            dispatcher=self.dispatcher,
        )
        self.engine._wakeup.set = self.wake
        self.engine.step()

    def wake(self) -> None:
        self.woken += 1

    def receive(self, name: str, queue_url: str = "https://q") -> None:
        self.engine.receive(queue_url, {"MessageId": name, "ReceiptHandle": name}, terms=TERMS)

    def release(self, name: str) -> None:
        assert self.engine.release(name, 0.0, "failed")


@pytest.fixture
def awaited() -> Awaited:
    awaited = Awaited()
    for name in NAMES:
        awaited.receive(name)
    # Reports the receives.
    awaited.engine.step()
    awaited.woken = 0
    return awaited


def release_each(awaited: Awaited, *names: str) -> None:
    for each in names:
        awaited.release(each)


def test_a_change_wakes_the_engine_if_it_makes_a_call_due(awaited: Awaited) -> None:
    awaited.release("a")
    assert awaited.woken == 1
    awaited.engine.step()
    awaited.release("b")
    assert awaited.woken == 2


def test_changes_that_come_together_wake_it_once_and_all_are_made(awaited: Awaited) -> None:
    with awaited.engine.gathering():
        release_each(awaited, *NAMES)
        assert awaited.woken == 0
    assert awaited.woken == 1
    awaited.engine.step()
    handles = [entry.receipt_handle for call in awaited.dispatcher.calls for entry in call.entries]
    assert sorted(handles) == list(NAMES)


def test_changes_before_an_error_still_wake_it(awaited: Awaited) -> None:
    def fail() -> None:
        with awaited.engine.gathering():
            release_each(awaited, "a", "b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert awaited.woken == 1
    awaited.engine.step()
    awaited.release("c")
    assert awaited.woken == 2


def test_changes_after_which_nothing_is_due_wake_no_one(awaited: Awaited) -> None:
    with awaited.engine.gathering():
        pass
    assert awaited.woken == 0


def test_a_queue_whose_calls_hang_gets_no_more_of_them_and_the_others_do(awaited: Awaited) -> None:
    dispatcher = awaited.dispatcher
    for number in range(2 * MOST_HANGING):
        awaited.receive(f"m{number}")
        awaited.release(f"m{number}")
        awaited.engine.step()
        # The call is given up.
        awaited.clock.advance(5)
        awaited.engine.step()
    assert len(awaited.engine._hanging) == MOST_HANGING
    assert len(dispatcher.calls) == MOST_HANGING
    awaited.receive("other", "https://other")
    awaited.release("other")
    awaited.engine.step()
    assert dispatcher.calls[-1].queue_url == "https://other"

    # A call that returns makes room for another one.
    dispatcher.answers[0]([Outcome.UNKNOWN] * len(dispatcher.calls[0].entries))
    assert len(awaited.engine._hanging) == MOST_HANGING - 1
    awaited.clock.advance(5)
    awaited.engine.step()
    assert dispatcher.calls[-1].queue_url == "https://q"

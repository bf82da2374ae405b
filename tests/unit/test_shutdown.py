"""A shutdown releases what has not started and leaves time for the flush.

Signals may arrive at any moment: their handlers lose nothing and delay nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from mmap import mmap
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kombu.asynchronous import Hub

from celery_sqs_heartbeat.common.threads import SignalSafeLock
from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.keeper_main import flush_time_left
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.worker import shutdown
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from celery_sqs_heartbeat.worker.shutdown import release_unstarted
from tests.support.insides import ready_lock_of
from tests.support.leases import lease_of
from tests.support.waiting import PATIENCE

SIGNAL = signal.SIGUSR1
#: The default of Kubernetes' terminationGracePeriodSeconds.
GRACE_PERIOD = 30


class SignallingClock(FakeClock):
    """A clock that raises a signal once when it is read: a keeper reads it during a change."""

    is_armed = False

    def __call__(self) -> float:
        if self.is_armed:
            self.is_armed = False
            signal.raise_signal(SIGNAL)
        return super().__call__()


@pytest.fixture
def clock() -> SignallingClock:
    return SignallingClock()


@pytest.fixture
def keeper(clock: SignallingClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[LinkedKeeper]:
    """The keeper, as a worker that shuts down on SIGUSR1 has it, with two messages: a and b."""
    monkeypatch.setattr(shutdown, "SIGNALS", (SIGNAL,))
    before = signal.getsignal(SIGNAL)
    held_messages = HeldMessages(Table(mmap(-1, Table.size_for(REACH))))
    for name in "ab":
        held_messages.add(lease_of(name, message_id=name), {"ReceiptHandle": name})
    ours, theirs = delivery_sockets()
    with theirs:
        keeper = LinkedKeeper(held_messages, Inlet(ours.detach()), clock=clock)
        yield keeper
        keeper.close_inlet()
    signal.signal(SIGNAL, before)


def interrupt(keeper: LinkedKeeper, clock: SignallingClock, handler: Any) -> None:
    """Have the signal arrive during the keeper's next change."""
    signal.signal(SIGNAL, lambda number, frame: handler())
    shutdown.put_off_signals(keeper)
    clock.is_armed = True


def test_a_handler_runs_after_the_change_that_its_signal_interrupted(
    keeper: LinkedKeeper, clock: SignallingClock
) -> None:
    seen: list[int] = []

    def shut_down() -> None:
        seen.append(keeper.ending)
        keeper.release("b")

    interrupt(keeper, clock, shut_down)
    keeper.done("a")
    assert seen == [1]
    assert keeper.ending == 2


def test_a_handler_that_waits_delays_no_other_thread(
    keeper: LinkedKeeper, clock: SignallingClock
) -> None:
    # The soft shutdown waits like this to give running tasks time. If other threads had to wait as
    # well, no message would be acked meanwhile.
    others: list[bool] = []

    def wait_for_another_thread() -> None:
        thread = threading.Thread(target=keeper.done, args=("b",), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        others.append(thread.is_alive())

    interrupt(keeper, clock, wait_for_another_thread)
    keeper.done("a")
    assert others == [False]


def test_a_signal_at_any_other_time_is_handled_at_once(keeper: LinkedKeeper) -> None:
    handled: list[int] = []
    signal.signal(SIGNAL, lambda number, frame: handled.append(number))
    shutdown.put_off_signals(keeper)
    signal.raise_signal(SIGNAL)
    assert handled == [SIGNAL]


def test_a_handler_that_replaces_itself_is_deferred_too(
    keeper: LinkedKeeper, clock: SignallingClock
) -> None:
    # Celery's handlers do that at the first Ctrl+C, and again in a cold and in a soft shutdown.
    seen: list[int] = []

    def second(number: int, frame: Any) -> None:
        seen.append(keeper.ending)

    def first() -> None:
        signal.signal(SIGNAL, second)
        raise KeyboardInterrupt

    interrupt(keeper, clock, first)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(SIGNAL)
    keeper.done("a")
    assert seen == [1]


def test_a_handler_is_wrapped_once(keeper: LinkedKeeper) -> None:
    signal.signal(SIGNAL, lambda number, frame: None)
    shutdown.put_off_signals(keeper)
    wrapped = signal.getsignal(SIGNAL)
    signal.raise_signal(SIGNAL)
    shutdown.put_off_signals(keeper)
    assert signal.getsignal(SIGNAL) is wrapped


def test_handlers_installed_for_a_soft_shutdown_are_deferred_while_it_waits(
    keeper: LinkedKeeper, clock: SignallingClock
) -> None:
    seen: list[int] = []
    released: list[bool] = []
    worker = SimpleNamespace(wait_for_soft_shutdown=lambda: keeper.done("a"))
    shutdown.release_before_soft_shutdown(worker, keeper, lambda: released.append(True))
    interrupt(keeper, clock, lambda: None)
    signal.signal(SIGNAL, lambda number, frame: seen.append(keeper.ending))
    worker.wait_for_soft_shutdown()
    assert seen == [1]
    assert released == [True]


def test_a_signal_that_is_not_handled_stays_so(keeper: LinkedKeeper) -> None:
    signal.signal(SIGNAL, signal.SIG_IGN)
    shutdown.put_off_signals(keeper)
    assert signal.getsignal(SIGNAL) is signal.SIG_IGN


def test_a_worker_beside_the_main_thread_leaves_its_signals_alone(keeper: LinkedKeeper) -> None:
    before = signal.getsignal(SIGNAL)
    thread = threading.Thread(target=shutdown.put_off_signals, args=(keeper,))
    thread.start()
    thread.join(PATIENCE)
    assert signal.getsignal(SIGNAL) is before


def test_deferred_handlers_wait_until_the_outermost_lock_is_released() -> None:
    lock, done = SignalSafeLock(), list[str]()
    with lock:
        with lock:
            assert lock.defer(lambda: done.append("job"))
        assert done == []
    assert done == ["job"]
    assert not lock.defer(lambda: done.append("never"))
    assert done == ["job"]


def test_the_event_loop_can_be_called_by_a_handler_that_interrupted_such_a_call() -> None:
    hub, called = Hub(), list[object]()
    shutdown.let_handlers_call_soon(hub)
    # Before 5.7 there is no lock.
    lock = ready_lock_of(hub) or threading.RLock()

    def interrupted() -> None:
        with lock:
            called.append(hub.call_soon(print))

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert len(called) == 1


def test_no_event_loop_needs_nothing() -> None:
    shutdown.let_handlers_call_soon(None)


class Waiting(LeasedRequest):
    """A request whose task waits in a pool of threads."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self.is_claimed_meanwhile = False

    def has_started(self) -> bool:
        # A thread of the pool claims the start, and says only later that the task runs.
        if self.is_claimed_meanwhile:
            assert self.claim_start()
        return False

    def is_held(self) -> bool:
        return True

    def release(self, cause: str) -> None:
        self.released.append(cause)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_task_that_starts_as_the_worker_shuts_down_keeps_its_message(*, is_claimed: bool) -> None:
    request = Waiting()
    request.is_claimed_meanwhile = is_claimed
    heartbeat = SimpleNamespace(arriving=set(), requests={"key": request})
    executor = SimpleNamespace(shutdown=lambda **options: None)
    release_unstarted(cast("Any", heartbeat), SimpleNamespace(executor=executor))
    assert request.released == ([] if is_claimed else ["shutdown"])
    assert request.claim_start() is is_claimed


@pytest.mark.parametrize(
    ("flush_timeout", "waited", "left"),
    [
        (15, 0, 15),
        (15, 10, 15),
        (15, 12, 13),
        (15, 21.5, 5),
        (60, 21.5, 48.5),
        (2, 21.5, 2),
    ],
)
def test_a_long_wait_for_the_last_polls_shortens_the_flush(
    flush_timeout: float, waited: float, left: float
) -> None:
    assert flush_time_left(flush_timeout, waited) == left


@pytest.mark.parametrize("waited", [0, 10, 21.5])
def test_the_default_leaves_room_in_the_grace_period_of_kubernetes(waited: float) -> None:
    assert waited + flush_time_left(FLUSH_SECONDS, waited) < GRACE_PERIOD

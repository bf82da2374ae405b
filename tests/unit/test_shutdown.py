"""A shutdown releases what has not started and keeps what runs, whatever its signal interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.platforms import EX_FAILURE
from celery.worker import state
from kombu.asynchronous import Hub

from celery_sqs_heartbeat.common.threads import SignalSafeLock
from celery_sqs_heartbeat.leases.policy import FLUSH_SECONDS
from celery_sqs_heartbeat.link.keeper_main import flush_time_left
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.worker import shutdown
from tests.support.insides import ready_lock_of
from tests.support.waiting import PATIENCE
from tests.unit.scene import Scene

New = Callable[..., Scene]
SIGNAL = signal.SIGUSR1
#: The default of Kubernetes' terminationGracePeriodSeconds.
GRACE_PERIOD = 30


def within(seconds: float, function: Callable[[], object]) -> bool:
    """Call a function on another thread. Return whether it returns in time."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


class SignallingClock(FakeClock):
    """A clock that raises a signal once when it is read: a keeper reads it during a change."""

    is_armed = False

    def __call__(self) -> float:
        if self.is_armed:
            self.is_armed = False
            signal.raise_signal(SIGNAL)
        return super().__call__()


class Signalled:
    """A worker that holds the messages a and b, and shuts down on SIGUSR1."""

    def __init__(self, new_scene: New) -> None:
        self.clock = SignallingClock(1000.0)
        self.scene = new_scene(clock=self.clock)
        self.keeper = self.scene.keeper
        self.scene.deliver("a", "b")
        self.seen: list[int] = []

    def note(self, number: int, frame: Any) -> None:
        """Handle the signal: note how many messages are being deleted or released."""
        self.seen.append(self.keeper.ending)

    def handle(self, handler: Any) -> None:
        signal.signal(SIGNAL, handler)
        shutdown.put_off_signals(self.keeper)

    def interrupt(self, change: Callable[[], object]) -> None:
        """Have the signal arrive during a change of the keeper's record."""
        self.clock.is_armed = True
        change()
        assert not self.clock.is_armed


@pytest.fixture
def signalled(new_scene: New, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signalled]:
    monkeypatch.setattr(shutdown, "SIGNALS", (SIGNAL,))
    before = signal.getsignal(SIGNAL)
    yield Signalled(new_scene)
    signal.signal(SIGNAL, before)


def test_a_handler_runs_after_the_change_that_its_signal_interrupted(signalled: Signalled) -> None:
    def release(number: int, frame: Any) -> None:
        signalled.note(number, frame)
        signalled.keeper.release("b")

    signalled.handle(release)
    signalled.interrupt(lambda: signalled.keeper.done("a"))
    assert (signalled.seen, signalled.keeper.ending) == ([1], 2)
    # At any other time it runs at once, and it was wrapped only once.
    wrapped = signal.getsignal(SIGNAL)
    signal.raise_signal(SIGNAL)
    assert signalled.seen == [1, 2]
    assert signal.getsignal(SIGNAL) is wrapped


def test_a_handler_that_waits_delays_no_other_thread(signalled: Signalled) -> None:
    # The soft shutdown waits like this to give running tasks time. If other threads had to wait as
    # well, no message would be acked meanwhile.
    others: list[bool] = []

    def wait(number: int, frame: Any) -> None:
        others.append(within(PATIENCE, lambda: signalled.keeper.done("b")))

    signalled.handle(wait)
    signalled.interrupt(lambda: signalled.keeper.done("a"))
    assert others == [True]


@pytest.mark.parametrize("is_soft", [False, True])
def test_a_handler_that_celery_installs_later_is_deferred_too(
    signalled: Signalled, *, is_soft: bool
) -> None:
    # Celery's handlers do that at the first Ctrl+C, and again in a cold and in a soft shutdown.
    released: list[bool] = []
    if is_soft:
        signalled.handle(lambda number, frame: None)
        worker = SimpleNamespace(
            wait_for_soft_shutdown=lambda: signalled.interrupt(lambda: signalled.keeper.done("a"))
        )
        shutdown.release_before_soft_shutdown(
            worker, signalled.keeper, lambda: released.append(True)
        )
        signal.signal(SIGNAL, signalled.note)
        worker.wait_for_soft_shutdown()
    else:

        def replace(number: int, frame: Any) -> None:
            signal.signal(SIGNAL, signalled.note)
            raise KeyboardInterrupt

        signalled.handle(replace)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(SIGNAL)
        signalled.interrupt(lambda: signalled.keeper.done("a"))
    assert (signalled.seen, released) == ([1], [True] * is_soft)


def test_an_ignored_signal_and_those_of_another_threads_worker_stay_as_they_are(
    signalled: Signalled,
) -> None:
    signalled.handle(signal.SIG_IGN)
    assert signal.getsignal(SIGNAL) is signal.SIG_IGN
    signal.signal(SIGNAL, signalled.note)
    errors: list[BaseException] = []

    def put_off() -> None:
        try:
            shutdown.put_off_signals(signalled.keeper)
        except ValueError as error:
            errors.append(error)

    assert within(PATIENCE, put_off)
    assert (errors, signal.getsignal(SIGNAL)) == ([], signalled.note)


def test_deferred_handlers_wait_until_the_outermost_lock_is_released() -> None:
    lock, done = SignalSafeLock(), list[str]()
    with lock:
        with lock:
            assert lock.defer(lambda: done.append("job"))
        assert done == []
    assert done == ["job"]
    assert not lock.defer(lambda: done.append("never"))


def test_the_event_loop_can_be_called_by_a_handler_that_interrupted_such_a_call() -> None:
    hub = Hub()
    shutdown.let_handlers_call_soon(hub)
    # Before 5.7 there is no lock.
    lock = ready_lock_of(hub) or threading.RLock()

    def interrupted() -> None:
        with lock:
            hub.call_soon(print)

    assert within(PATIENCE, interrupted)
    shutdown.let_handlers_call_soon(None)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_task_that_starts_as_the_worker_shuts_down_keeps_its_message(
    new_scene: New, *, is_claimed: bool
) -> None:
    scene = new_scene(has_processes=False)
    request = scene.start("waits for a thread")
    # A thread of the pool claims the start, and says only later that the task runs.
    shut_down = lambda **options: is_claimed and request.claim_start()  # noqa: E731
    scene.pool.executor = SimpleNamespace(shutdown=shut_down, _shutdown=False)
    shutdown.release_unstarted(scene.heartbeat, scene.pool)
    assert scene.fate("waits for a thread") == ("held" if is_claimed else "released 0 shutdown")
    assert scene.slots == ({"waits for a thread"} if is_claimed else set())
    assert request.claim_start() is is_claimed


def test_a_delivery_that_the_signal_interrupted_is_released_unless_it_has_its_request(
    scene: Scene,
) -> None:
    def take_and_end(message: Any) -> None:
        if message.delivery_tag != "a":
            return
        scene.take(message)
        shutdown.end_polls(scene.heartbeat)
        scene.got["a"].begin()
        shutdown.release_unstarted(scene.heartbeat, scene.pool)

    scene.consume(take_and_end)
    scene.deliver("a", "b", "c")
    assert scene.fate("a") == "held"
    assert {scene.fate(each) for each in "bc"} == {"released 0 not delivered"}
    assert ["end"] in scene.linked.elsewhere.inbox.messages


@pytest.mark.parametrize("error", [NotImplementedError("the pool cannot grow"), OSError(5, "down")])
def test_a_broken_worker_ends_by_its_error_and_never_reconnects(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(state, "should_stop", None)
    hub = Hub()
    shutdown.end_worker(hub, error)
    with pytest.raises(type(error)) as caught:
        next(hub.create_loop())
    hub.close()
    # Celery looks at this before it connects again.
    assert (caught.value, state.should_stop) == (error, EX_FAILURE)
    monkeypatch.setattr(state, "should_stop", None)
    shutdown.end_worker(None, error)
    assert state.should_stop == EX_FAILURE


@pytest.mark.parametrize(
    ("flush_timeout", "waited", "left"),
    [(FLUSH_SECONDS, 10, 15), (FLUSH_SECONDS, 21.5, 5), (60, 21.5, 48.5), (2, 21.5, 2)],
)
def test_a_long_wait_for_the_last_polls_shortens_the_flush(
    flush_timeout: float, waited: float, left: float
) -> None:
    assert flush_time_left(flush_timeout, waited) == left
    assert waited + flush_time_left(FLUSH_SECONDS, waited) < GRACE_PERIOD

"""The attendant starts a worker's keeper, reads its messages, replaces it and ends it.

A keeper that dies, hangs or sends garbage is replaced, and the next continues with every lease. One
that only waits for a CPU, or whose worker was stopped itself, is not taken to hang.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from mmap import mmap
from typing import Any

import pytest

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.events import MOST_HANGING, Event, EventKind
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.link import attendant as attending
from celery_sqs_heartbeat.link import child as child_module
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.child import LOOK_SECONDS, LivenessMonitor, is_busy, is_unfit
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import ROOT, Hello
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.held import HeldClock
from tests.support.leases import lease_of
from tests.support.linked import message_of
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.link.pairs import Far, pack
from tests.unit.scripts import table

#: How many looks without a tick show that a keeper hangs.
LOOKS = child_module._LOOKS
#: A keeper that has lived so long, in seconds, is replaced without a pause.
LONG_LIFE = 61.0
#: The kernel's limit on process ids: no process has this one or a higher one.
NO_PID = 1 << 22
TERMS = LeaseTerms(visibility_timeout=3_600, threshold=1_200)
LOST = Event.of(EventKind.LEASE_LOST, lease_of("m"), 1.0)


class ShiftedClock:
    """The monotonic clock, plus an offset that the test sets."""

    def __init__(self) -> None:
        self.more = 0.0
        self.stopped_at: float | None = None

    def __call__(self) -> float:
        return time.monotonic() + self.more if self.stopped_at is None else self.stopped_at


class FakeChild:
    """Stands for a keeper's process. The test plays the keeper."""

    def __init__(self, link: int, pid: int) -> None:
        self.pid = pid
        self.far = Far(socket.socket(fileno=os.dup(link)))
        self.said: list[list[Any]] = []
        self.end_as = ""
        self.was_killed = False

    def has_ended(self) -> bool:
        return bool(self.end_as)

    def kill(self) -> None:
        if not self.end_as:
            self.was_killed = True
            self.die("signal SIGKILL")

    def describe_end(self) -> str:
        return self.end_as or "still running"

    def die(self, how: str = "signal SIGKILL") -> None:
        self.far.close()
        self.end_as = how

    def say(self, *said: Any) -> None:
        self.far.send(pack(said))

    def heard(self, kind: str = "") -> list[list[Any]]:
        """Return the messages that the keeper has got so far, of one kind or all."""
        if self.far.connection.fileno() >= 0:
            self.said += self.far.read()
        return [each for each in self.said if kind in ("", each[0])]

    def wait_for(self, *kinds: str) -> FakeChild:
        wait_until(lambda: all(self.heard(kind) for kind in kinds), tell=lambda: self.said)
        return self


class Attended:
    """A worker whose keepers are started by the test."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = ShiftedClock()
        self.table = Table(mmap(-1, Table.size_for(REACH)))
        ours, self.theirs = delivery_sockets()
        held = HeldMessages(self.table)
        self.keeper = LinkedKeeper(held, Inlet(ours.detach()), clock=clock or self.clock)
        self.outlet = Outlet(os.dup(self.theirs.fileno()), 1)
        self.children: list[FakeChild] = []
        self.events: list[Event] = []
        self.seconds = 0
        self.refusals: list[OSError] = []
        self.attendant = Attendant(
            keeper=self.keeper,
            hello=Hello(pid=os.getpid()),
            table=self.table,
            descriptors=(self.theirs.fileno(), 0),
            on_event=self.take_event,
            every_second=self.count_second,
            launch=self.start,
            clock=self.clock,
        )
        self.attendant.begin()

    def start(self, link: int, *_: int) -> FakeChild:
        if self.refusals:
            raise self.refusals.pop(0)
        self.children.append(FakeChild(link, NO_PID + len(self.children)))
        return self.children[-1]

    def take_event(self, event: Event) -> None:
        if event.cause == "bad handler":
            raise ZeroDivisionError
        self.events.append(event)

    def count_second(self) -> None:
        self.seconds += 1

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    def receive(self, *names: str) -> None:
        """Have a keeper hand messages over."""
        for name in names:
            lease = lease_of(name, message_id=name, expires_at=self.clock() + 3_600, terms=TERMS)
            header = (1, "q", *messages.lease_fields(lease))
            self.outlet.send([(header, message_of(name, name, 1))])
        self.keeper.pull()

    def next_child(self, number: int) -> FakeChild:
        wait_until(lambda: len(self.children) >= number)
        return self.children[number - 1].wait_for("hello")

    def tick(self, ago: float = 0.0) -> None:
        """Let the keeper tick, and the attendant see it."""
        self.table.tick = self.clock() - ago
        seconds, self.clock.more = self.seconds, self.clock.more + 1
        wait_until(lambda: self.seconds > seconds)

    def stop(self) -> None:
        if not self.child.end_as:
            self.child.die("exit status 0")
        self.attendant.stop(0.0)
        self.keeper.close_inlet()
        self.outlet._socket.close()
        self.theirs.close()


@pytest.fixture
def attended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attended]:
    monkeypatch.setattr(attending, "_END_SECONDS", 30.0)
    # A keeper that ticked once does not hang while this thread stalls.
    monkeypatch.setattr(child_module, "_LOOKS", PATIENCE / LOOK_SECONDS)
    attended = Attended()
    attended.attendant.start()
    yield attended
    attended.stop()


def test_both_sides_hear_each_other_and_a_handler_that_fails_affects_nothing_else(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    child = attended.child.wait_for("done")
    assert [each[0] for each in child.heard()] == ["hello", "done"]
    assert attended.attendant.pid == child.pid
    bad = messages.event(LOST)
    bad[1][[each.name for each in fields(Event)].index("cause")] = "bad handler"
    line = {"name": ROOT, "level": 40, "text": "a line", "created": 1.0, "error": None}
    stats = ("stats", {"health": {"late": True}})
    child.say(bad, ("log", {}), messages.event(LOST), ("log", line), stats, ("over", "m"))
    wait_until(lambda: not len(attended.keeper))
    assert attended.events == [LOST]
    assert attended.attendant.stats == {"health": {"late": True}}
    assert "a line" in caplog.messages
    assert caplog.text.count("handling a message from the keeper failed") == 2
    assert len(attended.children) == 1


def test_a_keeper_follows_the_log_level_of_its_worker(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    levels = [logging.getLogger(ROOT).getEffectiveLevel()]
    hellos = [attended.next_child(1).heard()[0]]
    caplog.set_level(7, ROOT)
    attended.child.wait_for("level")
    assert attended.child.heard("level") == [["level", 7]]
    caplog.set_level(8, ROOT)
    attended.child.die()
    hellos.append(attended.next_child(2).heard()[0])
    assert [hello[2]["level"] for hello in hellos] == [*levels, 8]


def test_a_dead_keeper_is_replaced_at_once_and_the_next_continues_with_all_that_has_not_ended(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.keeper.order("pool", [1])
    attended.receive("a", "b", "c")
    attended.keeper.done("c")
    attended.child.wait_for("pool", "done")
    attended.table.tick = attended.clock()
    # What it sent before its death counts.
    attended.child.say(("over", "c"))
    attended.child.die("signal SIGSEGV")
    child = attended.next_child(2).wait_for("resume", "gap")
    wait_until(lambda: len(child.heard("resume")) == 2)
    assert [each[0] for each in child.heard()] == [
        "hello",
        "gap",
        "pool",
        "finished",
        "resume",
        "resume",
    ]
    assert attended.keeper.ending == 0
    assert not attended.attendant.is_ready
    attended.table.tick = attended.clock()
    assert attended.attendant.is_ready
    (line,) = caplog.messages
    assert "ended (signal SIGSEGV); another starts at once and continues with 2 leases" in line


def test_keepers_that_die_early_are_replaced_after_growing_pauses_until_one_lives_long(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0)
    for number, pause in enumerate(pauses, start=1):
        attended.next_child(number).die("exit status 1")
        text = f"another starts in {pause:g} s" if pause else "another starts at once"
        wait_until(lambda number=number: len(caplog.messages) == number)
        assert text in caplog.messages[-1]
        attended.clock.more += pause
    for number in (9, 10):
        child = attended.next_child(number)
        attended.tick()
        attended.clock.more += LONG_LIFE
        child.die()
    last = attended.next_child(11).wait_for("gap")
    assert caplog.text.count("another starts at once") == 3
    # The journal records for how long no keeper has ticked, and each death counts.
    ((_, seconds, deaths),) = last.heard("gap")
    assert seconds >= LONG_LIFE
    assert deaths == 10


def test_a_keeper_that_hangs_is_killed_and_replaced(
    attended: Attended, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_LOOKS", LOOKS)
    attended.receive("m")
    attended.table.tick = attended.clock()
    attended.next_child(2).wait_for("gap", "resume")
    assert attended.children[0].was_killed
    assert "did nothing for a second, and was killed" in caplog.text


def test_a_keeper_whose_calls_hang_is_replaced_without_a_pause_but_not_before_a_minute(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.child.say(("stats", {"health": {"hanging": MOST_HANGING}}))
    wait_until(lambda: bool(attended.attendant.stats))
    attended.tick()
    assert not attended.child.was_killed
    attended.clock.more += LONG_LIFE
    attended.next_child(2)
    assert attended.children[0].was_killed
    said = f"had {MOST_HANGING} calls that hang, and was killed; another starts at once"
    assert said in caplog.text
    ages = ((MOST_HANGING - 1, LONG_LIFE), (MOST_HANGING, 59.9), (MOST_HANGING, 60.0))
    assert [is_unfit(*each) for each in ages] == [False, False, True]


@pytest.mark.parametrize("said", [b"\xff" * 100 + b"\n", pack([("what", 1)])])
def test_a_keeper_that_sends_what_no_keeper_sends_is_replaced(
    attended: Attended, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    attended.child.far.send(said)
    attended.next_child(2)
    assert attended.children[0].was_killed
    assert "replacing the keeper" in caplog.text


@pytest.mark.parametrize("what", ["process", "descriptors"])
def test_what_the_system_refuses_is_tried_again(
    attended: Attended,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    error = OSError(24, "none left")

    def refuse() -> None:
        raise error

    with monkeypatch.context() as without:
        if what == "process":
            attended.refusals.append(error)
        else:
            without.setattr(socket, "socketpair", refuse)
        attended.child.die("exit status 1")
        wait_until(lambda: "none left; the worker tries again" in caplog.text)
    assert not attended.attendant.is_ready
    attended.clock.more += 30.0
    attended.next_child(2)


# -- The end -------------------------------------------------------------------------------------


def test_a_keeper_that_exits_normally_is_not_replaced_but_one_that_dies_meanwhile_is(
    attended: Attended,
) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    first = attended.child.wait_for("done")

    def obey() -> None:
        first.wait_for("stop").die()
        second = attended.next_child(2).wait_for("stop", "resume")
        second.say(("over", "m"), ("log", {}))
        second.die("exit status 0")

    thread = threading.Thread(target=obey)
    thread.start()
    attended.attendant.stop(5.0)
    thread.join()
    assert attended.keeper.ending == 0
    assert len(attended.children) == 2
    attended.attendant.stop(5.0)


def test_a_keeper_that_does_not_exit_is_killed(
    attended: Attended, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_END_SECONDS", "_LAST_POLL_SECONDS"):
        monkeypatch.setattr(attending, name, 0.1)
    attended.attendant.stop(0.1)
    assert attended.child.was_killed
    assert "did not exit in time; killing it" in caplog.text


def test_a_keeper_that_has_closed_its_link_at_the_workers_end_is_not_taken_to_hang(
    attended: Attended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_LOOKS", LOOKS)
    stopping = threading.Thread(target=attended.attendant.stop, args=(5.0,))
    stopping.start()
    child = attended.child.wait_for("stop")
    # In this order: while its link is open, it must tick.
    child.far.close()
    attended.table.tick = attended.clock()
    # More checks in a row without a tick than a working keeper may have.
    time.sleep(2 * LOOKS * LOOK_SECONDS)
    child.end_as = "exit status 0"
    stopping.join()
    assert len(attended.children) == 1
    assert not child.was_killed


def test_a_forked_child_waits_for_no_lock_and_keeps_no_end_of_the_link_open() -> None:
    held = HeldClock()
    attended = Attended(held)
    with held.amid_a_change(attended.keeper):  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            signal.alarm(int(PATIENCE))
            # This does nothing: the keeper is not the child's.
            attended.attendant.stop(50.0)
            if attended.keeper.fileno() == -1:
                signal.pause()
            os._exit(1)
    assert attended.keeper.fileno() >= 0
    try:
        # This closes the worker's ends of the link, as its exit would.
        attended.keeper.detach()
        attended.keeper.leave_to_parent()
        for end in (attended.child.far.connection, attended.theirs):
            end.setblocking(True)
            while end.recv(1 << 16):
                pass
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        for end in (attended.child.far, attended.outlet._socket, attended.theirs):
            end.close()


# -- When a keeper hangs -------------------------------------------------------------------------

#: A check is one of five a second. `look 4` are four that do not find that the keeper hangs.
HANGS = """
a keeper that ticks is at work:
    tick; look 5; tick; look 5; tick; look 5
one that does nothing for a second hangs:
    tick; look 5; gone
one that waits for a CPU has five seconds:
    busy; tick; look 25; gone
a check that comes late does not count:
    tick; look 5; late 0.31; late 0.31; gone
nor one after its worker was stopped for hours:
    tick; look 1; late 7200; look 4; gone
one that starts may take half a minute:
    look 149; late 1; gone
but a late check of it does not count:
    late 100; gone
one that stalls at its start has three seconds:
    busy; look 5; idle; look 14; gone
one whose disk is slow at its start has more:
    busy; look 1; idle; look 14; busy; look 1; idle; look 14; busy; look 1; idle; look 14
a new keeper is not taken for the last:
    tick; look 5; gone; begin; look 20
"""


@table(HANGS)
def test_when_a_keeper_counts_as_hanging(script: str) -> None:
    clock, table, busy = FakeClock(1000.0), Table(bytearray(Table.size_for(REACH))), list[int]()
    monitor = LivenessMonitor(table, clock, lambda: bool(busy))
    for verb, *words in (step.split() for step in script.split(";")):
        if verb == "tick":
            table.tick = clock()
        elif verb == "begin":
            table.tick, monitor = 0.0, LivenessMonitor(table, clock)
        elif verb in ("busy", "idle"):
            busy[:] = [1] if verb == "busy" else []
        else:
            for _ in range(int(words[0]) if verb == "look" else 1):
                clock.advance(float(words[0]) if verb == "late" else LOOK_SECONDS)
                assert monitor.is_gone() is (verb == "gone")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says so")
def test_a_process_is_busy_while_it_computes_and_not_when_it_is_stopped_or_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        wait_until(lambda: is_busy(process.pid))
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: not is_busy(process.pid))
        process.kill()
    assert not is_busy(process.pid)
    assert not is_busy(NO_PID)

"""The attendant starts a worker's keeper, reads its messages, replaces it and ends it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
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
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import ROOT, Hello
from tests.support.leases import lease_of
from tests.support.linked import message_of
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.link.pairs import Far, pack

#: How many looks without a tick show that a keeper hangs.
LOOKS = child_module._LOOKS
#: A keeper that has lived so long, in seconds, is replaced without a pause.
LONG_LIFE = 61.0
#: The kernel's limit on process ids: no process has this one or a higher one.
NO_PID = 1 << 22
TERMS = LeaseTerms(visibility_timeout=3_600, threshold=1_200)
LOST = Event(
    kind=EventKind.LEASE_LOST,
    at=1.0,
    queue_url="https://q",
    message_id="m",
    task=None,
    task_id=None,
    receive_count=1,
    slack=0.0,
)


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

    def die(self, how: str) -> None:
        self.far.close()
        self.end_as = how

    def say(self, *said: Any) -> None:
        self.far.send(pack(said))

    def heard(self) -> list[list[Any]]:
        """Return all messages that the keeper has got so far."""
        if not self.end_as:
            self.said += self.far.read()
        return self.said

    def has_heard(self, kind: str) -> bool:
        return any(each[0] == kind for each in self.heard())


class Attended:
    """A worker whose keepers are started by the test."""

    def __init__(self) -> None:
        self.clock = ShiftedClock()
        self.table = Table(mmap(-1, Table.size_for(REACH)))
        ours, self.theirs = delivery_sockets()
        self.held = HeldMessages(self.table)
        self.keeper = LinkedKeeper(self.held, Inlet(ours.detach()), clock=self.clock)
        self.outlet = Outlet(os.dup(self.theirs.fileno()), 1)
        self.children: list[FakeChild] = []
        self.events: list[Event] = []
        self.seconds = 0
        self.refusals: list[OSError] = []
        self.attendant = Attendant(
            self.keeper,
            hello=Hello(pid=os.getpid()),
            table=self.table,
            descriptors=(self.theirs.fileno(), 0),
            on_event=self.take_event,
            every_second=self.count_second,
            start=self.start,
            clock=self.clock,
        )

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

    def receive(self, name: str) -> None:
        """Have a keeper hand a message over."""
        lease = lease_of(name, message_id=name, expires_at=self.clock() + 3_600, terms=TERMS)
        header = (1, "q", *messages.lease_fields(lease))
        self.outlet.send([(header, message_of(name, name, 1))])
        self.keeper.pull()

    def wait_for_child(self, number: int) -> FakeChild:
        wait_until(lambda: len(self.children) >= number)
        return self.children[number - 1]

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
    monkeypatch.setattr(child_module, "_LOOKS", PATIENCE / child_module.LOOK_SECONDS)
    attended = Attended()
    attended.attendant.begin()
    attended.attendant.start()
    yield attended
    attended.stop()


def test_a_new_keeper_gets_a_hello_and_all_that_the_worker_says(attended: Attended) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    wait_until(lambda: attended.child.has_heard("done"))
    assert [each[0] for each in attended.child.heard()] == ["hello", "done"]
    assert attended.attendant.pid == attended.child.pid


def test_the_keepers_messages_are_handled(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.receive("m")
    line = {"name": "celery_sqs_heartbeat.x", "level": 40, "text": "a line", "created": 1.0}
    attended.child.say(
        messages.event(LOST),
        ("log", {**line, "error": None}),
        ("stats", {"health": 1}),
        ("over", "m"),
    )
    wait_until(lambda: not len(attended.keeper))
    assert attended.events == [LOST]
    assert attended.attendant.stats == {"health": 1}
    assert "a line" in caplog.messages


def test_a_keeper_follows_the_log_level_of_its_worker(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    def level_at_hello(child: FakeChild) -> int:
        wait_until(lambda: child.has_heard("hello"))
        return int(child.heard()[0][2]["level"])

    assert level_at_hello(attended.child) == logging.getLogger(ROOT).getEffectiveLevel()
    caplog.set_level(7, ROOT)
    wait_until(lambda: attended.child.has_heard("level"))
    assert [each for each in attended.child.heard() if each[0] == "level"] == [["level", 7]]
    caplog.set_level(8, ROOT)
    attended.child.die("signal SIGKILL")
    assert level_at_hello(attended.wait_for_child(2)) == 8


def test_a_handler_that_fails_does_not_affect_other_messages(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.receive("m")
    bad = messages.event(LOST)
    bad[1][list(Event.__slots__).index("cause")] = "bad handler"
    attended.child.say(bad, ("log", {}), ("over", "m"))
    wait_until(lambda: not len(attended.keeper))
    assert len(attended.children) == 1
    assert caplog.text.count("handling a message from the keeper failed") == 2


def test_a_dead_keeper_is_replaced_at_once_and_the_next_continues(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.keeper.order("pool", [1])
    attended.receive("a")
    attended.receive("b")
    attended.table.tick = attended.clock()
    wait_until(lambda: attended.child.has_heard("pool"))
    attended.child.die("signal SIGSEGV")
    child = attended.wait_for_child(2)
    wait_until(lambda: child.has_heard("resume"))
    wait_until(lambda: len(child.heard()) >= 4)
    kinds = [each[0] for each in child.heard()]
    assert [each for each in kinds if each != "gap"] == ["hello", "pool", "resume", "resume"]
    assert not attended.attendant.is_ready
    attended.table.tick = attended.clock()
    assert attended.attendant.is_ready
    (line,) = caplog.messages
    assert "ended (signal SIGSEGV); another starts at once and continues with 2 leases" in line


def test_messages_that_a_keeper_sent_before_its_death_count(attended: Attended) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    wait_until(lambda: attended.child.has_heard("done"))
    attended.child.say(("over", "m"))
    attended.child.die("signal SIGKILL")
    child = attended.wait_for_child(2)
    wait_until(lambda: child.has_heard("hello"))
    assert not child.has_heard("resume")
    assert attended.keeper.ending == 0


def test_keepers_that_die_early_are_replaced_after_growing_pauses(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0)
    for number, pause in enumerate(pauses, start=1):
        child = attended.wait_for_child(number)
        wait_until(lambda child=child: child.has_heard("hello"))
        child.die("exit status 1")
        text = f"another starts in {pause:g} s" if pause else "another starts at once"
        wait_until(
            lambda text=text, number=number: (
                len(caplog.messages) == number and text in caplog.messages[-1]
            )
        )
        attended.clock.more += pause
    attended.wait_for_child(len(pauses) + 1)


def test_keepers_that_lived_long_are_replaced_at_once_and_each_death_counts(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 4):
        child = attended.wait_for_child(number)
        wait_until(lambda child=child: child.has_heard("hello"))
        seconds, attended.table.tick = attended.seconds, attended.clock()
        attended.clock.more += 1
        # The attendant has seen its tick.
        wait_until(lambda seconds=seconds: attended.seconds > seconds)
        attended.clock.more += LONG_LIFE
        child.die("signal SIGKILL")
    last = attended.wait_for_child(4)
    wait_until(lambda: last.has_heard("gap"))
    assert [each[2] for each in last.heard() if each[0] == "gap"] == [3]
    assert caplog.text.count("another starts at once") == 3


def test_the_gap_counts_from_the_last_tick_even_if_keepers_die_before_their_first(
    attended: Attended,
) -> None:
    attended.table.tick = attended.clock() - 5.0
    for number in (1, 2):
        child = attended.wait_for_child(number)
        wait_until(lambda child=child: child.has_heard("hello"))
        child.die("signal SIGKILL")
        attended.clock.more += 1.0
    last = attended.wait_for_child(3)
    wait_until(lambda: last.has_heard("gap"))
    ((_, seconds, deaths),) = [each for each in last.heard() if each[0] == "gap"]
    assert seconds > 5.0
    assert deaths == 2


def test_a_keeper_that_lived_long_is_replaced_at_once_again(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.child.die("exit status 1")
    second = attended.wait_for_child(2)
    wait_until(lambda: second.has_heard("hello"))
    attended.table.tick = attended.clock()
    attended.clock.more += 60.0
    second.die("exit status 1")
    attended.wait_for_child(3)
    assert caplog.text.count("another starts at once") == 2


def test_a_keeper_that_hangs_is_killed_and_replaced(
    attended: Attended, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_LOOKS", LOOKS)
    attended.receive("m")
    attended.table.tick = attended.clock()
    child = attended.wait_for_child(2)
    assert attended.children[0].was_killed
    wait_until(lambda: child.has_heard("resume"))
    assert "did nothing for a second, and was killed" in caplog.text
    # The journal records how long no keeper ran.
    assert child.heard()[1][0] == "gap"


def test_a_keeper_whose_calls_hang_is_replaced_without_a_pause_but_not_before_a_minute(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.receive("m")
    attended.table.tick = attended.clock()
    attended.child.say(("stats", {"health": {"hanging": MOST_HANGING}}))
    wait_until(lambda: bool(attended.attendant.stats))
    seconds = attended.seconds
    attended.clock.more += 1
    wait_until(lambda: attended.seconds > seconds)
    assert not attended.child.was_killed
    attended.clock.more += LONG_LIFE
    child = attended.wait_for_child(2)
    assert attended.children[0].was_killed
    wait_until(lambda: child.has_heard("resume"))
    said = (
        f"the keeper's process had {MOST_HANGING} calls that hang, and was killed; another starts"
    )
    assert f"{said} at once" in caplog.text
    assert not child_module.is_unfit(MOST_HANGING - 1, LONG_LIFE)
    assert [child_module.is_unfit(MOST_HANGING, age) for age in (59.9, 60.0)] == [False, True]


def test_a_keeper_that_sends_garbage_is_replaced(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.child.far.send(b"\xff" * 100 + b"\n")
    attended.wait_for_child(2)
    assert attended.children[0].was_killed
    assert "replacing the keeper" in caplog.text


def test_a_keeper_that_sends_an_unknown_message_is_replaced(attended: Attended) -> None:
    attended.child.say(("what", 1))
    attended.wait_for_child(2)
    assert attended.children[0].was_killed


def test_a_process_that_cannot_be_started_is_tried_again(
    attended: Attended, caplog: pytest.LogCaptureFixture
) -> None:
    attended.refusals.append(OSError(11, "no more processes"))
    attended.child.die("exit status 1")
    wait_until(lambda: "no more processes; the worker tries again" in caplog.text)
    assert not attended.attendant.is_ready
    attended.clock.more += 30.0
    attended.wait_for_child(2)


def test_a_worker_without_descriptors_tries_again(
    attended: Attended, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(24, "too many open files")

    with monkeypatch.context() as without:
        without.setattr(socket, "socketpair", refuse)
        attended.child.die("exit status 1")
        wait_until(lambda: "too many open files; the worker tries again" in caplog.text)
    attended.clock.more += 30.0
    attended.wait_for_child(2)


def test_a_new_keeper_gets_all_leases_as_fast_as_it_reads_them(attended: Attended) -> None:
    """More than a socket holds is sent at once, not only at checks: the clock is stopped here."""
    wait_until(lambda: attended.child.has_heard("hello"))
    attended.clock.stopped_at = attended.clock()
    for number in range(1_000):
        attended.receive(f"m{number}")
        attended.child.heard()
    attended.child.die("signal SIGKILL")
    child = attended.wait_for_child(2)
    wait_until(lambda: sum(each[0] == "resume" for each in child.heard()) == 1_000)
    attended.clock.stopped_at = None


def test_every_second_is_called_once_a_second() -> None:
    attended = Attended()
    attended.clock.stopped_at = 100.0
    attended.attendant.begin()
    attended.attendant.start()
    attended.clock.stopped_at = 100.3
    wait_until(lambda: attended.seconds == 1)
    attended.clock.stopped_at = 101.4
    wait_until(lambda: attended.seconds == 2)
    attended.stop()


# -- The end -----------------------------------------------------------------------------


def test_a_keeper_that_exits_normally_is_not_replaced(attended: Attended) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    child = attended.child

    def obey() -> None:
        # Before the stop, any exit would count as a death.
        wait_until(lambda: child.has_heard("stop"))
        child.say(("over", "m"), ("log", {}))
        child.die("exit status 0")

    thread = threading.Thread(target=obey)
    thread.start()
    attended.attendant.stop(5.0)
    thread.join()
    assert attended.keeper.ending == 0
    assert len(attended.children) == 1


def test_the_next_keeper_gets_the_stop_if_one_dies_meanwhile(attended: Attended) -> None:
    attended.receive("m")
    attended.keeper.done("m")
    wait_until(lambda: attended.child.has_heard("done"))
    first = attended.child

    def obey() -> None:
        wait_until(lambda: first.has_heard("stop"))
        first.die("signal SIGKILL")
        second = attended.wait_for_child(2)
        wait_until(lambda: second.has_heard("stop") and second.has_heard("resume"))
        second.say(("over", "m"))
        second.die("exit status 0")

    thread = threading.Thread(target=obey)
    thread.start()
    attended.attendant.stop(5.0)
    thread.join()
    assert attended.keeper.ending == 0
    assert len(attended.children) == 2


def test_a_keeper_that_does_not_exit_is_killed(
    attended: Attended, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending, "_END_SECONDS", 0.1)
    attended.attendant.stop(0.1)
    assert attended.child.was_killed
    assert "did not exit in time; killing it" in caplog.text


def test_a_second_stop_does_nothing(attended: Attended) -> None:
    attended.child.die("exit status 0")
    attended.attendant.stop(1.0)
    attended.attendant.stop(1.0)


def test_a_forked_child_does_not_keep_the_link_open(attended: Attended) -> None:
    wait_until(lambda: attended.child.has_heard("hello"))
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        # This does nothing: the keeper is not the child's.
        attended.attendant.stop(50.0)
        signal.pause()
    try:
        # This closes the worker's end of the link, as its exit would.
        attended.attendant.leave_to_parent()
        wait_until(lambda: is_at_its_end(attended.child.far.connection))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def is_at_its_end(connection: socket.socket) -> bool:
    try:
        return connection.recv(1 << 20) == b""
    except BlockingIOError:
        return False

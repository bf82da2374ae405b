"""A worker and its keeper: what one says the other does, also if the keeper dies meanwhile.

A message that the worker holds is kept or released, never both, and no release is made twice. The
deliveries are real.
"""

from __future__ import annotations

import socket

import pytest

from celery_sqs_heartbeat.leases.events import least_beside
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.link import messages
from tests.support.linked import CHANNEL, message_of
from tests.unit.link.ends import QUEUE, TERMS, Ends
from tests.unit.scripts import table

#: Bytes that no socket takes at once.
LARGE = 1 << 20
ALIVE = """
a message that arrives is ours, and its confirmations are read from the table:
    receive m; is m goal=hold receive_count=1; owns m=yes; lost m=no; left 1; +21 makes extend m;
    is m expires_at=51 hidden_until=51 last_timeout=30; quiet
one that SQS reports lost is lost here:
    receive m; +21 makes extend m : lost; lost m=yes; owns m=no; is m status=lost
one that is received again is known by both handles:
    receive m; receive m handle=n count=2 -> redelivered; hear;
    is m receipt_handle=n receive_count=2; is n receipt_handle=n; left 1; done m;
    +1 makes delete n; left 0
one that is received again before it is handed over can be acked:
    arrive m; arrive m handle=n count=2 -> redelivered; deliver; hear; owns m=yes; dies; done m;
    +1 begins delete n
a message that is done is deleted once, and finished from then on:
    receive m; done m; ending 1; take; receive m handle=n count=2 -> finished; +1 makes delete n;
    left 0; ending 0; receive m handle=o count=3 -> finished; makes delete o; left 0; ending 0
an ack after a release counts although the lease has ended:
    receive m; release m; begins release m; answers done; done m; exchange;
    receive m handle=n count=2 -> finished
or the message is deleted if the release was not sent:
    receive m; release m; done m; take; receive m handle=n count=2 -> finished; +1 makes delete n;
    ending 0
a second ack that crosses the end of the lease ends, too:
    receive m; done m; +1 begins delete m; answers done; done m; exchange; left 0; ending 0
a released message is new when it is received again:
    receive m; release m 7 failed; release m; is m release_delay=7; makes release m; ending 0;
    release m -> unknown; receive m handle=n count=2
one that is received before its release was sent ends before it:
    receive m; release m; take; receive m handle=n; exchange; unknown m; is n goal=hold
a message that is left to expire is unknown at once:
    receive a; receive b; drop a kept; disown b; unknown a; unknown b; disowned a=no b=yes;
    drop a -> unknown; exchange; left 0; +25 makes
one whose start was said is known to run:
    receive m; start m; is m started_at=0; +1 done m; take; at-keeper m started_at=0
the table shows that a release is under way, and that it has ended:
    receive m; release m; begins release m; flags m RELEASING; answers done; flags m OVER
a message that has ended before it is handed over is not:
    arrive a; arrive b; keeper-drops a; keep; deliver; room -1; hear; unknown a; is b goal=hold;
    left 1
nor is one that has ended on its way:
    arrive m; deliver; keeper-drops m; pull; unknown m; left 0
one whose task succeeded as it came again is deleted and not run:
    channel 10; receive m; keeper-drops m; arrive m handle=n count=2; deliver; done m; pull; held 1;
    take; at-keeper n goal=delete
one that comes again before its end is reported is known only once:
    receive m; release m; keeper-drops m; arrive m handle=n count=2; deliver; pull; unknown m;
    is n goal=hold; left 1
"""
DEAD = """
what it had not handed over is released by the next:
    arrive m; keep; hear; left 0; unknown m; dies; makes release m; ending 0; left 0
also if the worker did not read it in time, but not what it had handed over:
    arrive m; keep; hear; deliver; dies; left 1; is m goal=hold; +21 makes extend m
a word that a message is not handed over may come late:
    arrive m; keep; deliver; pull; hear; dies; left 1; is m goal=hold
a lease is held on, a delete is made, and a message that was dropped is not mentioned:
    receive a; receive b; receive c; done b; drop c; dies; makes delete b; left 1;
    +21 makes extend a
a finished message is not run under the next:
    receive m; done m; +1 makes delete m; dies; receive m handle=n count=2 -> finished;
    makes delete n
an ack after a release is not lost with it:
    receive m; release m; done m; dies; makes delete m; ending 0
after a release was tried none extends its message:
    receive m; release m; makes release m : throttled; done m; dies; makes delete m : failed;
    +21 makes delete m
a release that was not sent is made by the next:
    receive m; release m; dies; makes release m; ending 0
also if the last one knew of it:
    receive m; release m; exchange; dies; makes release m; ending 0
a release that comes too late is not made by the next:
    receive m; release m; +31 dies; makes; ending 0
calls that it completed without a report are not repeated:
    receive m; release m; begins release m; answers done; dies; makes; left 0; ending 0
a release that may have been sent is not repeated:
    receive m; release m; begins release m; dies; makes; ending 0
nor if its record is half written:
    receive m; release m; exchange; garble m; dies; makes; ending 0
nor if the table had no place for it:
    receive f1..f16; receive m; release m; begins release m; dies; makes; ending 0
nor if the keeper made it by itself:
    receive m; keeper-releases m; begins release m; dies; is m goal=release; makes; ending 0;
    left 0; receive m handle=n count=2
nor if it has been answered:
    receive m; keeper-releases m; begins release m; answers done; dies; makes; ending 0; left 0
nor that of a message that it had not handed over:
    arrive m; keep; hear; keeper-releases m; begins release m; dies; makes; ending 0
nor that of such a message which has been answered:
    arrive m; keep; hear; keeper-releases m; begins release m; answers done; dies; makes; ending 0
the next knows that only that release makes its message visible so early:
    receive m; release m; begins release m; dies; makes; +20 receive m handle=n count=2;
    at-keeper n is_exclusive=yes
and that it may still be performed later:
    receive m; release m; begins release m; dies; exchange; dies; exchange;
    +40 receive m handle=n count=2 -> released; receive m handle=o count=3
also if its outcome was reported as unknown:
    receive m; release m; begins release m; answers unknown; exchange; dies; makes;
    +40 receive m handle=n count=2 -> released
also if the lease lapsed while it was under way:
    receive m; release m; begins release m; receive m handle=n count=2 poll=40 -> lapsed; steps;
    exchange; ending 0; dies; dies; +40 receive m handle=o count=3 -> released;
    receive m handle=p count=4
doubts about a message survive it:
    receive m; receive m handle=n count=2 poll=40 -> lapsed; is m is_exclusive=no; dies; release m;
    makes; ending 0
what it knew of a message without a place in the table is lost:
    receive f1..f16; receive m; dies; is m is_exclusive=no
"""
#: The order of a group, through what the worker hears late and through its keeper's death.
GROUPS = """
behind a message that was received again after its loss later ones wait:
    get m1; +30.5 steps; get m1 count=2 -> redelivered; get m3; waits m3-1=yes; exchange; dies;
    take; get m4; waits m4-1=yes
waiting messages are released, and the first runs on:
    get m1 m2 m3 m4; hear; dies; take; at-keeper m1-1 goal=hold; releases m2-1 m3-1 m4-1; exchange;
    at-keeper m1-1 goal=hold; left 1; ending 0
the first of those that waited is released last:
    get m1 m2 m3 m4; done m1-1; exchange; releases; waits m2-1=no; hear; dies; take;
    releases m3-1 m4-1 m2-1; exchange; left 0
a later message waits for the one that runs:
    get m1; dies; take; get m2; waits m2-1=yes; done m1-1; exchange; waits m2-1=yes; releases;
    waits m2-1=no
a failed message stops those that wait behind it:
    get m1; dies; take; get m2 m3; release m1-1; exchange; releases m3-1 m2-1 m1-1
so does a failure of which the dying keeper does not hear:
    get m1 m2 m3; hear; release m1-1; dies; take; releases m2-1 m3-1 m1-1
a lost lease stops nothing:
    get m1; +31 steps; exchange; answers lost; exchange; get m2; waits m2-1=no; hear; dies; take;
    release m1-1; exchange; releases; at-keeper m2-1 goal=hold
nor does one of which no one knows yet:
    get m1; +31 steps; exchange; get m2; waits m2-1=no; hear; dies; take; release m1-1; exchange;
    releases; at-keeper m2-1 goal=hold
"""
#: A channel of a worker has a prefetch count. `room` is what its keeper may hand over.
CREDIT = """
room is said at once while little is left:
    channel 1; room 1; give 1; room 0; end 1; room 1
else once it is worth another poll, or something else is said:
    channel 10; room 10; give 4; end 2; room 6; say; room 8; end 1; room 8; end 1; room 10
the first room after none is said at once, then as much as a poll beside another asks for:
    channel 10; give 10; room 0; end 4; room 4
it waits no longer than for a push:
    channel 10; give 1; end 1; push; room 10
less room is said at once:
    channel 10; give 4; prefetch 8; room 4
the next keeper has the room that is left:
    channel 10; give 7; end 2; dies; room 5; prefetch 10; push; room 5; give 5; held 10; end 10;
    push; room 10
also of what was not read before the death:
    channel 10; hand-over 7; dies; held 7; room 3
what was not handed over takes no room from the next:
    channel 3; arrive a; arrive b; keep; hear; dies; room 3
a closed channel has no room with the next:
    channel 3; close; dies; room 0
"""


@pytest.fixture
def ends() -> Ends:
    return Ends()


@table(ALIVE)
def test_with_one_keeper(ends: Ends, script: str) -> None:
    ends.play(script)


@table(DEAD)
def test_when_a_keeper_dies(ends: Ends, script: str) -> None:
    ends.play(script)


@table(GROUPS)
def test_of_a_message_group_whose_keeper_dies(ends: Ends, script: str) -> None:
    ends.play(script)


@table(CREDIT)
def test_of_credit(ends: Ends, script: str) -> None:
    assert least_beside(10) == 3
    ends.play(script)


def test_a_message_arrives_with_its_channel_and_queue(ends: Ends) -> None:
    arrived: list[tuple[int, Arrived]] = []
    ends.worker.on_arrived = arrived.extend
    ends.play("receive m")
    ((channel, message),) = arrived
    assert (channel, message.queue, message.handle) == (CHANNEL, "q", "m")
    assert message.message["MessageId"] == "m"
    assert message.lease is ends.worker.find("m")
    assert message.lease.terms == TERMS
    assert [each.message_id for each in ends.worker.snapshot()] == ["m"]
    assert not ends.worker.pull()


def receive_large(ends: Ends, *names: str) -> list[str]:
    """Have the keeper hand large messages over. Return those of which it says only the handle."""
    for name in names:
        message = {**message_of(name, name, 1), "Body": "b" * LARGE}
        ends.elsewhere.receive(QUEUE, message, TERMS, 30, 0.0)
    ends.elsewhere.deliver()
    kept = [fields for kind, fields in ends.elsewhere.outbox.messages if kind == "kept"]
    return [messages.read_lease(fields).receipt_handle for fields in kept]


def test_messages_that_are_still_on_their_way_are_held_as_any_other(ends: Ends) -> None:
    assert receive_large(ends, "a", "b") == ["a", "b"]
    ends.play("hear")
    while len(ends.worker) < 2:
        ends.worker.pull()
    ends.play("is a goal=hold; is b goal=hold; dies; left 2")


def test_what_was_on_its_way_when_a_keeper_died_is_released_by_the_next(ends: Ends) -> None:
    receive_large(ends, "a", "b")
    with ends.elsewhere.outlet._lock:
        ends.elsewhere.outlet._packets.clear()
    ends.play("hear")
    ends.play("dies; makes release a release b; left 0; ending 0; receive c; left 1")


def test_all_that_a_dead_keeper_had_handed_over_is_held_however_large(ends: Ends) -> None:
    """Otherwise it would arrive later, when no keeper knows it."""
    ends.elsewhere.outlet._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    if receive_large(ends, "a"):
        pytest.skip("the system's sockets do not take as much")
    ends.worker.detach()
    ends.start()
    ends.play("left 1; is a goal=hold")

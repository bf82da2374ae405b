"""Which call is due when, over all queues, and which message of a group may begin.

The leases that expire first go first, leases share few calls, and no queue takes every call from
the others. In a FIFO queue no message begins before the one ahead of it is deleted at SQS. One that
fails stops its group: those behind it are released before it, the last one first.
"""

from __future__ import annotations

import math
import weakref

import pytest

from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from tests.unit.book_scripts import START, TERMS, Book
from tests.unit.scripts import table

#: Beyond twice the leases that it has.
SLACK = 32
BATCHES = """
a call is filled up with the next leases of its queue:
    receive m1..m12 every=1; receive x queue_url=other; 20 sizes 10
of more than ten that are due, the most urgent go first:
    receive a; 1 receive m1..m20; 1 receive b; 25 sizes 10 10 2; answer 3 done; b expires_at=55;
    a expires_at=30
of those that are due, the one that expires first goes first:
    receive a; 0.5 receive b; 20 calls extend a=30 b=30; answer throttled failed; due 20.05;
    20.3 calls extend a=30 b=30
a queue has four calls of a kind in flight, and others are made:
    receive m1..m100; receive x queue_url=other; 20 sizes 10 10 10 10 1; sizes; answer done;
    sizes 10
a call that is not due waits, although another is made:
    receive m1..m15 every=0.003; 20 sizes 10; due 20.03; 20.042 sizes 5
a retry is not made early:
    receive m1..m11; 20 sizes 10 1; answer failed; answer failed; 20.01 receive n1..n20 hidden=10;
    sizes 10 10; n20 pending=extend; m1 pending=none
a lease that broke a shared call has one of its own:
    receive a; receive b; 20 calls extend a=30 b=30; answer malformed;
    calls extend a=30 | extend b=30; confirm; receive c hidden=10; calls extend c=30
also beside one that is more urgent:
    receive a; receive b; 20 calls extend a=30 b=30; answer malformed; receive c hidden=9;
    calls extend c=30 | extend a=30 | extend b=30
"""
ACKS = """
an ack waits for others for a moment:
    receive m1..m3; done m1; sizes; due 0.05; 0.05 sizes 1; confirm; left 2; ending 0
and takes those with it that come meanwhile:
    receive m1..m4; done m1; 0.02 done m2; 0.04 done m3; due 0.05; 0.051 calls delete m1 m2 m3
the ack of the last held message waits for none:
    receive m1..m3; done m1..m3; sizes 3
acks are sent as soon as they fill a batch:
    receive m1..m40; done m1..m9; sizes; done m10; sizes 10; confirm; done m11..m15; sizes;
    +0.05 sizes 5
those that a full batch leaves behind count for the next:
    receive m1..m40; done m1..m13; sizes 10; confirm; done m14..m19; sizes; done m20; sizes 10
a message of another queue is not waited for:
    receive m1; receive x queue_url=other; done m1; sizes 1
one that was released is not waited for:
    receive m1..m2; release m2; sizes 1; done m1; calls delete m1
one that was let expire is not waited for:
    receive m1..m2; drop m2; done m1; sizes 1
deletes that failed do not make later acks hurry:
    receive m1..m30; done m1..m10; sizes 10; answer failed; done m11; sizes
short tasks, one at a time, share their deletes:
    receive m1; done m1; sizes 1; confirm; 0.0125 receive m2; done m2; sizes; 0.025 receive m3;
    done m3; sizes; 0.05 receive m4; done m4; sizes 3
"""


@table(BATCHES)
def test_of_calls(script: str) -> None:
    Book().play(script)


@table(ACKS)
def test_of_acks(script: str) -> None:
    Book().play(script)


def test_leases_received_apart_drift_into_common_batches() -> None:
    book = Book().play("receive m1..m5 every=3; run 600 extend=done")
    kinds = [event.call_number for event in book.events]
    assert max(kinds) == pytest.approx(600 / 20, abs=2)


def test_deletes_that_fail_over_and_over_do_not_delay_a_new_one() -> None:
    # More deletes than are called within five seconds. After that time each is tried again.
    book = Book().play("receive m1..m600 threshold=1; done m1..m600; 5 receive new; done new")
    while book.book.get("new") is not None and book.now < START + 25:
        book.now += 0.5
        for call in book.plan():
            is_new = [each.receipt_handle == "new" for each in call.entries]
            book.answer(call, *("done" if each else "failed" for each in is_new))
    assert book.book.get("new") is None


class Placed(Lease):
    """A lease whose deallocation tests can observe."""

    __slots__ = ("__weakref__",)


def lease(number: int, expires_at: float = 30.0) -> Lease:
    queue = "abc"[number % 3]
    made = Placed(queue_url=queue, message_id=str(number), terms=TERMS, held_since=0.0)
    made.lasts_until(expires_at, math.inf)
    return made


def test_ended_leases_do_not_pile_up_until_their_extension_would_be_due() -> None:
    agenda = Agenda()
    passed: list[weakref.ref[Lease]] = []
    for number in range(2_000):
        each = lease(number, 43_200.0 + number)
        agenda.add(each)
        agenda.put(each)
        agenda.remove(each)
        passed.append(weakref.ref(each))
    del each
    assert sum(each() is not None for each in passed) <= 3 * (SLACK + 1)


WAITING = """
only the first of its group does not wait:
    receive m1..m3 group=g; receive n7 group=h; waits m1=no m2=yes m3=yes n7=no
the sequence numbers decide, not the arrival:
    receive m10 group=g; receive m9 group=g; waits m9=no m10=yes
none waits that is not kept in order:
    receive m1..m2 group=g in_order=no; release m1 0 failed; waits m2=no; m2 goal=hold;
    run 1 release=done; told message-released m1 stops_group=no
none waits without a sequence number, as on a standard queue:
    receive m1..m2 group=g number=none; release m1; waits m2=no; m2 goal=hold
the next waits until SQS has confirmed the delete:
    receive m1..m2 group=g; done m1; calls delete m1; waits m2=yes; answer failed; waits m2=yes;
    +1 calls delete m1; answer done; waits m2=no; m2 goal=hold
the delete of the first does not wait for other acks:
    receive m1 group=g; receive x1..x2; done x1; calls; done m1; calls delete m1 x1
none waits for one that was lost:
    receive m1 group=g; 20 calls extend m1=30; answer lost; receive m2 group=g; waits m2=no
none waits for one whose release is not confirmed:
    receive m1 group=g; release m1; calls release m1=0; receive m2 group=g; waits m2=no;
    answer done; m2 goal=hold
one that is received again has its place again:
    receive m1..m2 group=g; release m1; calls release m2=0; answer done; calls release m1=0;
    answer done; receive m1 handle=n1 group=g; receive m2 handle=n2 group=g; waits n1=no n2=yes
one whose task continues has its place again:
    receive m1 group=g; 20 calls extend m1=30; answer lost;
    receive m1 handle=n1 group=g -> redelivered; receive m2 group=g; waits n1=no m2=yes
a group is extended in one call:
    receive m1..m10 group=g; 20 sizes 10
"""
STOPPED = """
those behind a released message are released first:
    receive m1..m4 group=g; release m1 90 failed; calls release m4=0 m3=0 m2=0; calls;
    answer done; calls release m1=90; answer done; left 0;
    told message-released m1 cause=failed stops_group=yes;
    told message-released m2 cause=group_stopped stops_group=no;
    told message-released m4 cause=group_stopped stops_group=no
it waits for a release behind it that is tried again:
    receive m1..m3 group=g; release m1; calls release m3=0 m2=0; answer done throttled;
    +1 calls release m2=0; answer done; calls release m1=0
but not for one without an answer:
    receive m1..m2 group=g; release m1; calls release m2=0; answer unknown; calls release m1=0
nor for longer than its lease lasts:
    receive m1..m2 group=g; release m1; calls release m2=0; 31 calls; m1 gone;
    events message-lapsing; answer done; left 0
one in the middle leaves those before it alone, and does not stop the group:
    receive m1..m3 group=g; release m2 0 shutdown; calls release m3=0 m2=0; m1 goal=hold;
    answer done; told message-released m2 stops_group=no
one that is let expire stops its group:
    receive m1..m3 group=g; drop m1 kept; told message-lapsing m1 stops_group=yes;
    calls release m3=0; answer done; calls release m2=0; answer done;
    told message-released m2 stops_group=no
one that is released too late stops its group:
    receive m1..m2 group=g; 31 calls extend m1=30; release m1 0 failed; answer done;
    told message-lapsing m1 stops_group=yes
one that was lost stops its group while its task continues:
    receive m1..m3 group=g; 20 calls extend m1=30 m2=30 m3=30; answer lost done done;
    m1 goal=hold; m2 goal=release; m3 goal=release
one that expires stops its group, even if it is received again:
    receive m1..m2 group=g; 21 calls extend m1=30 m2=30; answer failed done;
    run 31 extend=failed release=failed; receive m1 handle=n1 group=g count=2 -> redelivered;
    receive m3 group=g; n1 goal=hold; m2 goal=release; waits m3=yes
one that expires stops its group:
    receive m1 group=g; 20 calls extend m1=30; answer unknown; 25 receive m2 group=g;
    30 calls extend m1=30 release m2=0; m1 goal=hold status=expired
one whose delete can never succeed stops its group:
    receive m1..m2 group=g; done m1; calls delete m1; answer lost; calls release m2=0
one that waits until its lease nears its end is released with those behind it:
    receive m1..m3 group=g max_lease=100; run 95 extend=done release=done; m1 goal=hold;
    told message-released m2 cause=waited_long; told message-released m3 cause=group_stopped
one that ends otherwise reports no stop:
    receive m1 group=g; drop m1; events
"""


@table(WAITING)
def test_of_a_message_group(script: str) -> None:
    Book().play(script)


@table(STOPPED)
def test_of_a_group_that_stops(script: str) -> None:
    Book().play(script)


@pytest.mark.parametrize("cause", [GROUP_STOPPED, WAITED_LONG, NO_ROOM])
def test_a_message_that_waited_until_it_was_the_first_does_not_stop_its_group(cause: str) -> None:
    released = f"receive m1 group=g; release m1 0 {cause.replace(' ', '_')}; run 1 release=done"
    Book().play(f"{released}; told message-released m1 stops_group=no")

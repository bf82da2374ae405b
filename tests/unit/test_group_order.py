"""Message groups of FIFO queues: no message begins before the one ahead of it is deleted at SQS.

A message that fails stops its group. Those behind it are released before it, the last one first.
"""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from tests.unit.book_scripts import Book
from tests.unit.scripts import table

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

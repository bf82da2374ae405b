"""The agenda: which call is due when, over all queues, and how leases share few calls.

The leases that expire first go first, no queue takes every call from the others, and what has ended
leaves nothing behind.
"""

from __future__ import annotations

import math
import weakref

import pytest

from celery_sqs_heartbeat.leases.agenda import Agenda
from celery_sqs_heartbeat.leases.lease import Lease
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

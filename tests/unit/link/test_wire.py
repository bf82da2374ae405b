"""One end of the link, on a real socket pair: it never waits for the other end."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.link.frames import BrokenLink
from tests.unit.link.pairs import Pair, pack
from tests.unit.link.pairs import pair as pair


def test_messages_arrive_in_order(pair: Pair) -> None:
    for number in range(5):
        pair.wire.post(("over", number))
    assert pair.wire.waiting == 5
    assert pair.wire.flush()
    assert pair.wire.waiting == 0
    assert pair.far.read() == [["over", number] for number in range(5)]


def test_an_end_that_does_not_read_delays_nothing(pair: Pair) -> None:
    written = list(pair.fill())
    for number in range(250):
        written.append(("late", number))
        pair.wire.post(written[-1])
        assert not pair.wire.flush()
    assert not pair.wire.is_broken
    assert pair.wire.waiting > 2
    assert pair.read_all() == [list(each) for each in written]
    assert pair.wire.flush()


def test_a_reader_of_few_bytes_at_a_time_gets_each_message_once(pair: Pair) -> None:
    written = list(pair.fill())
    read: list[list[object]] = []
    while pair.wire.waiting or len(read) < len(written):
        read += pair.far.read(7)
        pair.wire.flush()
    assert read == [list(each) for each in written]


def test_a_message_that_is_not_plain_is_refused_alone(pair: Pair) -> None:
    pair.fill()
    pair.wire.post(("before", 1))
    with pytest.raises(TypeError):
        pair.wire.post(("bad", object()))
    pair.wire.post(("after", 2))
    assert pair.read_all()[-2:] == [["before", 1], ["after", 2]]


def test_writing_to_an_end_that_is_closed_breaks_the_wire(pair: Pair) -> None:
    pair.far.close()
    pair.wire.post(("over", 1))
    assert not pair.wire.flush()
    assert pair.wire.is_broken
    assert not pair.wire.flush()


def test_reading_from_an_end_that_is_closed_breaks_the_wire(pair: Pair) -> None:
    assert pair.wire.receive() == []
    pair.far.close()
    assert pair.wire.receive() is None
    assert pair.wire.is_broken
    assert pair.wire.receive() is None


def test_messages_before_the_end_count(pair: Pair) -> None:
    pair.far.send(pack([("drop", 1)]))
    pair.far.close()
    assert pair.wire.receive() == [["drop", 1]]
    assert pair.wire.receive() is None


def test_an_end_in_the_middle_of_a_message_leaves_it_out(pair: Pair) -> None:
    pair.far.send(pack([("drop", 1)]) + pack([("drop", 2)])[:-1])
    pair.far.close()
    assert pair.wire.receive() == [["drop", 1]]
    assert pair.wire.receive() is None


def test_a_message_may_arrive_in_pieces(pair: Pair) -> None:
    for byte in pack([("drop", 1)]):
        assert pair.wire.receive() == []
        pair.far.send(bytes([byte]))
    assert pair.wire.receive() == [["drop", 1]]


def test_unreadable_bytes_are_an_error(pair: Pair) -> None:
    pair.far.send(b"\xff" * 100)
    with pytest.raises(BrokenLink):
        pair.wire.receive()


def test_a_wire_that_is_closed_sends_nothing(pair: Pair) -> None:
    pair.wire.close()
    assert pair.wire.fileno() == -1
    pair.wire.post(("over", 1))
    assert not pair.wire.flush()
    assert pair.wire.receive() is None

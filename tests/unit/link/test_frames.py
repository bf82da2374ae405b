"""The link on a real socket pair: what one end writes, the other reads, in any pieces.

Neither end waits for the other. If a worker does not read, the ends of leases and the events wait,
but log lines do not.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.link import frames
from celery_sqs_heartbeat.link.frames import BrokenLink, LineReader
from tests.fuzz.shapes import FUZZ
from tests.unit.link.pairs import Pair, pack
from tests.unit.link.pairs import pair as pair

LINE = ("log", {"text": "a line"})
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.tuples(st.text(), plain, plain).map(list),
    max_size=5,
)


@FUZZ
@given(batches=st.lists(messages, max_size=4), cuts=st.lists(st.integers(0, 400)))
def test_messages_are_the_same_in_whatever_pieces_they_arrive(
    batches: list[list[list[Any]]], cuts: list[int]
) -> None:
    written = b"".join(pack(batch) for batch in batches)
    ends = [*sorted(min(cut, len(written)) for cut in cuts), len(written)]
    reader, read, begin = LineReader(), [], 0
    for end in ends:
        read += reader.feed(written[begin:end])
        begin = end
    assert read == [message for batch in batches for message in batch]


@pytest.mark.parametrize("value", ["\ud800", "\0", math.inf, -math.inf, None, 0.1, 1 << 70, "ü💥"])
def test_a_value_survives(value: object) -> None:
    assert LineReader().feed(pack([("kind", value)])) == [["kind", value]]


def test_a_value_that_is_not_a_number_survives() -> None:
    ((_, value),) = LineReader().feed(pack([("kind", math.nan)]))
    assert math.isnan(value)


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}])
def test_a_value_that_is_not_plain_is_refused_when_it_is_written(value: object) -> None:
    with pytest.raises(TypeError):
        pack([("kind", value)])


def test_a_line_that_is_too_long_is_refused_before_it_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "MAX_LINE", 1_000)
    reader = LineReader()
    assert reader.feed(b"x" * 1_000) == []
    with pytest.raises(BrokenLink, match="1000"):
        reader.feed(b"x")


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[",
        b"",
        b"1",
        b"null",
        b"{}",
        b'"text"',
        b"[]",
        b"[1]",
        b"[null]",
        b'["one"],["two"]',
        b'["good"]\n[null]',
        b'["half"\n"half"]',
        b"[" * 200_000,
    ],
)
def test_a_line_that_is_not_a_message_breaks_the_link(line: bytes) -> None:
    with pytest.raises(BrokenLink):
        LineReader().feed(line + b"\n")


@FUZZ
@given(garbled=st.binary(max_size=60), at=st.integers(0, 60))
def test_garbled_bytes_break_the_link_or_are_still_messages(garbled: bytes, at: int) -> None:
    good: Sequence[Any] = [("over", 1, 1), ("log", {"text": "a line"})]
    written = bytearray(pack(good))
    written[at : at + len(garbled)] = garbled
    try:
        read = LineReader().feed(bytes(written))
    except BrokenLink:
        return
    assert all(isinstance(message, list) and isinstance(message[0], str) for message in read)


def test_a_message_is_a_line_of_json_that_a_stranger_can_read() -> None:
    lines = pack([("over", 1, 2), ("log", {"text": "two\nlines"})]).splitlines()
    assert [json.loads(line) for line in lines] == [
        ["over", 1, 2],
        ["log", {"text": "two\nlines"}],
    ]


def test_messages_arrive_in_order(pair: Pair) -> None:
    for number in range(5):
        pair.wire.post(("over", number))
    assert pair.wire.waiting == len(pack([("over", number) for number in range(5)]))
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
    assert pair.wire.waiting >= len(pack(written[-250:]))
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
    pair.far.send(b"\xff" * 100 + b"\n")
    with pytest.raises(BrokenLink):
        pair.wire.receive()


def test_a_wire_that_is_closed_sends_nothing(pair: Pair) -> None:
    pair.wire.close()
    assert pair.wire.fileno() == -1
    pair.wire.post(("over", 1))
    assert not pair.wire.flush()
    assert pair.wire.receive() is None


def test_a_message_is_sent_at_once(pair: Pair) -> None:
    pair.wire.send(("over", 1, 1))
    assert pair.far.read() == [["over", 1, 1]]


def test_log_lines_are_left_out_while_the_worker_does_not_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pair.wire
    filling = len(pair.fill())
    monkeypatch.setattr(frames, "MOST_WAITING", sent.waiting + 10 * len(pack([LINE])))
    for _ in range(30):
        sent.send(LINE)
    assert sent.waiting == frames.MOST_WAITING
    assert sent.take_left_out() == 0
    for number in range(20):
        sent.send(("over", number, 1))
        sent.send(("event", number, []))
        sent.send(("stats", {}))
        sent.send(LINE)
    read = pair.read_all()[filling:]
    assert [each for each in read if each[0] == "over"] == [["over", n, 1] for n in range(20)]
    assert [each for each in read if each[0] == "event"] == [["event", n, []] for n in range(20)]
    assert not [each for each in read if each[0] == "stats"]
    assert [sent.take_left_out(), sent.take_left_out()] == [40, 0]


def test_waiting_messages_are_sent_once_the_worker_reads_again(pair: Pair) -> None:
    sent = pair.wire
    filling = len(pair.fill())
    sent.send(("over", 1, 1))
    assert len(pair.far.read()) < filling
    sent.flush()
    assert pair.read_all()[-1] == ["over", 1, 1]


def test_threads_do_not_mix_their_messages(pair: Pair) -> None:
    sent = pair.wire

    def say(name: int) -> None:
        for number in range(200):
            sent.send(("over", name, number))

    threads = [threading.Thread(target=say, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    read: list[list[object]] = []
    while any(thread.is_alive() for thread in threads):
        read += pair.far.read()
        sent.flush()
    for thread in threads:
        thread.join()
    read += pair.read_all()
    for name in range(4):
        assert [each[2] for each in read if each[1] == name] == list(range(200))


def test_a_worker_that_is_gone_is_not_an_error(pair: Pair) -> None:
    pair.far.close()
    pair.wire.send(("over", 1, 1))
    assert pair.wire.is_broken

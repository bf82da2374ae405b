"""Frames: the messages written at one end of the link are read at the other, in any pieces."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.link.frames import MAX_FRAME, BrokenLink, FrameReader
from tests.fuzz.shapes import FUZZ
from tests.unit.link.pairs import pack

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.tuples(st.text(), plain, plain).map(list),
    max_size=5,
)


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@FUZZ
@given(batches=st.lists(messages, max_size=4), cuts=st.lists(st.integers(0, 400)))
def test_messages_are_the_same_in_whatever_pieces_they_arrive(
    batches: list[list[list[Any]]], cuts: list[int]
) -> None:
    written = b"".join(pack(batch) for batch in batches)
    ends = [*sorted(min(cut, len(written)) for cut in cuts), len(written)]
    reader, read, begin = FrameReader(), [], 0
    for end in ends:
        read += reader.feed(written[begin:end])
        begin = end
    assert read == [message for batch in batches for message in batch]


@pytest.mark.parametrize("value", ["\ud800", "\0", math.inf, -math.inf, None, 0.1, 1 << 70, "ü💥"])
def test_a_value_survives(value: object) -> None:
    assert FrameReader().feed(pack([("kind", value)])) == [["kind", value]]


def test_a_value_that_is_not_a_number_survives() -> None:
    ((_, value),) = FrameReader().feed(pack([("kind", math.nan)]))
    assert math.isnan(value)


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}])
def test_a_value_that_is_not_plain_is_refused_when_it_is_written(value: object) -> None:
    with pytest.raises(TypeError):
        pack([("kind", value)])


def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    with pytest.raises(BrokenLink, match=str(MAX_FRAME)):
        FrameReader().feed(struct.pack("<I", MAX_FRAME + 1))


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"[",
        b"",
        b"1",
        b"null",
        b"{}",
        b'"text"',
        b"[1]",
        b"[[]]",
        b"[[1]]",
        b'[["good"],[null]]',
        b"[" * 200_000,
    ],
)
def test_a_frame_that_is_not_a_list_of_messages_breaks_the_link(body: bytes) -> None:
    with pytest.raises(BrokenLink):
        FrameReader().feed(framed(body))


@FUZZ
@given(garbled=st.binary(max_size=60), at=st.integers(0, 60))
def test_garbled_bytes_break_the_link_or_are_still_messages(garbled: bytes, at: int) -> None:
    good: Sequence[Any] = [("over", 1, 1), ("log", {"text": "a line"})]
    written = bytearray(pack(good))
    written[at : at + len(garbled)] = garbled
    try:
        read = FrameReader().feed(bytes(written))
    except BrokenLink:
        return
    assert all(isinstance(message, list) and isinstance(message[0], str) for message in read)


def test_a_frame_is_json_that_a_stranger_can_read() -> None:
    assert json.loads(pack([("over", 1, 2)])[4:]) == [["over", 1, 2]]

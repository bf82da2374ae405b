"""The socket of the deliveries: whole messages one way, the room for them the other way."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.link.watching import wait_readable
from tests.fuzz.shapes import FUZZ
from tests.support.linked import close_outlet
from tests.support.waiting import PATIENCE, wait_until

#: As large as a message may be (SQS Developer Guide, "Amazon SQS message quotas").
LARGEST = 1 << 20
Given = tuple[list[Any], dict[str, Any]]

texts = st.text(st.characters(), max_size=20)
ODD = ("", "\ud800", "\x00", '{"$binary": "AA=="}', "ü" * 100_000, "b" * LARGEST)
bodies = st.none() | texts | st.sampled_from(ODD)
attributes = st.dictionaries(
    texts,
    st.fixed_dictionaries({"DataType": st.just("Binary"), "BinaryValue": st.binary(max_size=20)}),
    max_size=2,
)


def message_of(body: str | None, **more: Any) -> dict[str, Any]:
    return {"MessageId": "m", **({} if body is None else {"Body": body}), **more}


class Ends:
    """Both ends."""

    def __init__(self) -> None:
        ours, theirs = delivery_sockets()
        self.inlet, self.outlet = Inlet(ours.detach()), Outlet(theirs.detach(), 1)

    def send(self, *messages: Mapping[str, Any]) -> bool:
        given: Sequence[tuple[Message, Mapping[str, Any]]] = [
            ((number, "q"), each) for number, each in enumerate(messages)
        ]
        return self.outlet.send(given)

    def read(self, count: int) -> list[Given]:
        """Read until so many messages have arrived."""
        found: list[Given] = []
        while len(found) < count:
            assert wait_readable([self.inlet.fileno()], PATIENCE)
            found += self.inlet.read()
        return found

    def close(self) -> None:
        self.inlet.close()
        close_outlet(self.outlet)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


@pytest.fixture(scope="module")
def used() -> Iterator[Ends]:
    """Ends that have been used before, and have nothing left to read."""
    ends = Ends()
    yield ends
    ends.close()


@FUZZ
@given(sent=st.lists(st.builds(message_of, bodies, MessageAttributes=attributes), max_size=3))
def test_messages_arrive_as_they_were_sent(used: Ends, sent: list[dict[str, Any]]) -> None:
    used.send(*sent)
    assert used.read(len(sent)) == [([number, "q"], each) for number, each in enumerate(sent)]


def test_a_worker_that_goes_stops_no_keeper(ends: Ends) -> None:
    while ends.send(message_of("x" * 10_000)):
        pass
    ends.inlet.close()
    assert (ends.inlet.fileno(), ends.inlet.read()) == (-1, [])
    assert ends.inlet.allow(1, 1, 1, 1)
    wait_until(lambda: not ends.outlet._packets)
    assert ends.send(message_of("b" * LARGEST))
    assert not ends.outlet.read_rooms(lambda *room: None)


# -- Room ---------------------------------------------------------------------------------------


def rooms(outlet: Outlet) -> list[tuple[int, int, int]]:
    """Read what the worker has said about rooms."""
    found: list[tuple[int, int, int]] = []
    while wait_readable([outlet._socket.fileno()], 0):
        assert outlet.read_rooms(lambda *room: found.append(room))
    return found


def test_room_that_no_keeper_reads_must_be_said_again(ends: Ends) -> None:
    # The keeper with another number is gone.
    ends.inlet.allow(2, 3, 10, 4)
    while ends.inlet.allow(1, 3, 10, 4):
        pass
    assert rooms(ends.outlet)[0] == (3, 10, 4)
    assert ends.inlet.allow(1, 3, (1 << 63) - 1, 4)
    assert ends.inlet.allow(1, 4, -2, 0)
    # Only the last word on a channel counts.
    assert rooms(ends.outlet) == [(3, (1 << 63) - 1, 4), (4, -2, 0)]


def test_a_system_without_sequenced_packets_has_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = socket.socketpair

    def refuse(family: int, kind: int) -> Any:
        if kind == socket.SOCK_SEQPACKET:
            raise OSError(43, "Protocol not supported")
        return pair(family, kind)

    with monkeypatch.context() as without:
        without.setattr(socket, "socketpair", refuse)
        ends = Ends()
    ends.send(message_of("b" * LARGEST))
    assert ends.read(1) == [([0, "q"], message_of("b" * LARGEST))]
    ends.close()

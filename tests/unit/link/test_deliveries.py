"""The socket of the deliveries: whole messages one way, the room for them the other way."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.link.deliveries import MOST_READ, Inlet, Outlet, delivery_sockets
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
    """Both ends. The keeper's may be replaced."""

    def __init__(self) -> None:
        ours, self._theirs = delivery_sockets()
        self.inlet = Inlet(ours.detach())
        self.outlets: list[Outlet] = []
        self.replace()

    def replace(self) -> None:
        """Let another keeper send. The last one sends no more, even what it has not sent yet."""
        for outlet in self.outlets:
            with outlet._lock:
                outlet._packets.clear()
        number = len(self.outlets) + 1
        self.outlets.append(Outlet(os.dup(self._theirs.fileno()), number))

    @property
    def outlet(self) -> Outlet:
        return self.outlets[-1]

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

    def fill(self) -> int:
        """Send until the socket takes no more. Return how many messages were sent."""
        sent = 1
        while self.send(message_of("x" * 10_000)):
            sent += 1
        return sent

    def close(self) -> None:
        self.inlet.close()
        for outlet in self.outlets:
            close_outlet(outlet)
        self._theirs.close()


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


def test_what_is_sent_to_a_full_socket_follows_in_order_when_the_worker_reads(ends: Ends) -> None:
    sent = 0
    while ends.send(message_of(str(sent) + "x" * 10_000)):
        sent += 1
    # This returns at once, although no one reads.
    assert not ends.send(message_of("the last"))
    found = [message["Body"].rstrip("x") for _, message in ends.read(sent + 2)]
    assert found == [*(str(number) for number in range(sent + 1)), "the last"]
    assert ends.send(message_of("later"))
    assert ends.read(1) == [([0, "q"], message_of("later"))]


def test_the_unfinished_message_of_a_dead_keeper_is_dropped(ends: Ends) -> None:
    ends.send(message_of("whole"))
    assert not ends.send(message_of("b" * LARGEST))
    ends.replace()
    found = ends.inlet.read()
    while more := ends.inlet.read():
        found += more
    assert [message for _, message in found] == [message_of("whole")]
    assert ends.send(message_of("of the next"))
    assert ends.read(1) == [([0, "q"], message_of("of the next"))]


def test_a_worker_that_goes_stops_no_keeper(ends: Ends) -> None:
    ends.fill()
    ends.inlet.close()
    assert (ends.inlet.fileno(), ends.inlet.read()) == (-1, [])
    assert ends.inlet.allow(1, 1, 1, 1)
    wait_until(lambda: not ends.outlet._packets)
    assert ends.send(message_of("b" * LARGEST))
    assert not ends.outlet.read_rooms(lambda *room: None)


def test_one_read_does_not_take_long(ends: Ends) -> None:
    for _ in range(100):
        ends.send(message_of("x" * 10_000))
    size = sum(len(message["Body"]) for _, message in ends.inlet.read())
    assert size <= MOST_READ + LARGEST
    ends.read(100 - size // 10_000)


# -- Room ---------------------------------------------------------------------------------------


def rooms(outlet: Outlet) -> list[tuple[int, int, int]]:
    """Read what the worker has said about rooms."""
    found: list[tuple[int, int, int]] = []
    while wait_readable([outlet._socket.fileno()], 0):
        assert outlet.read_rooms(lambda *room: found.append(room))
    return found


def test_room_for_another_keeper_is_dropped(ends: Ends) -> None:
    ends.inlet.allow(1, 3, 10, 4)
    ends.replace()
    ends.inlet.allow(2, 3, 5, 4)
    assert rooms(ends.outlet) == [(3, 5, 4)]


def test_room_that_no_keeper_reads_must_be_said_again(ends: Ends) -> None:
    while ends.inlet.allow(1, 3, 10, 4):
        pass
    ends.replace()
    assert rooms(ends.outlet) == []
    assert ends.inlet.allow(2, 3, 5, 4)
    assert rooms(ends.outlet) == [(3, 5, 4)]


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

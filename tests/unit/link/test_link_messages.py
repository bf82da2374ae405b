"""Messages survive the link unchanged, and a hello of another version is refused."""

from __future__ import annotations

import math
from dataclasses import astuple, fields
from mmap import mmap
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.link import messages
from celery_sqs_heartbeat.link.frames import BrokenLink, LineReader
from celery_sqs_heartbeat.link.held_messages import HeldMessage
from celery_sqs_heartbeat.link.messages import VERSION, Hello, read_hello
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.fuzz.shapes import FUZZ
from tests.support.leases import lease_of
from tests.unit.link.pairs import pack

TABLE = Table(mmap(-1, Table.size_for(REACH)))

texts = st.text(st.characters(), max_size=12)
seconds = st.floats(allow_nan=False)
counts = st.integers(0, 1 << 40)

terms = st.builds(
    LeaseTerms,
    visibility_timeout=st.integers(1, 43_200),
    threshold=seconds,
    max_lease=seconds,
    extend=st.booleans(),
    extend_late=st.booleans(),
    in_order=st.booleans(),
)
queues = st.builds(
    ConsumedQueue,
    name=texts,
    url=texts,
    lease_url=texts,
    terms=terms,
    task_terms=st.dictionaries(texts, terms, max_size=2),
    timeout=st.none() | counts,
    max_receive_count=st.none() | counts,
    batch=counts,
    wait=counts,
    pause=seconds,
    attributes=st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
)
events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    at=seconds,
    queue_url=texts,
    message_id=texts,
    task=st.none() | texts,
    task_id=st.none() | texts,
    receive_count=counts,
    slack=seconds,
    receipt_handle=texts,
    visibility_timeout=counts,
    held_for=seconds,
    ended_for=st.none() | seconds,
    cause=texts,
    max_receive_count=st.none() | counts,
    sent_time=st.none() | seconds,
    first_received_time=st.none() | seconds,
    group=st.none() | texts,
    sequence_number=st.none() | texts,
    stops_group=st.booleans(),
    action=st.none() | st.sampled_from(Action),
    outcome=st.none() | st.sampled_from(Outcome),
    call_number=counts,
    batch=counts,
    seconds=seconds,
)
leases = st.builds(
    Lease,
    queue_url=texts,
    message_id=texts,
    terms=terms,
    held_since=seconds,
    task=st.none() | texts,
    task_id=st.none() | texts,
    receipt_handle=texts,
    receive_count=counts,
    received_at=seconds,
    expires_at=seconds,
    hidden_until=seconds,
    last_timeout=counts,
    goal=st.sampled_from(Goal),
    status=st.sampled_from(LeaseStatus),
    asked_at=seconds,
    release_delay=counts,
    cause=texts,
    max_receive_count=st.none() | counts,
    sent_time=st.none() | seconds,
    first_received_time=st.none() | seconds,
    group=st.none() | texts,
    sequence_number=st.none() | texts,
    started_at=st.none() | seconds,
    extensions=st.integers(0, 1),
    is_exclusive=st.booleans(),
    more_handles=st.lists(texts, max_size=3).map(tuple),
    has_place=st.booleans(),
)

#: Fields of a lease that are sent beside the others, or that a new book works out again.
BOOKS_OWN = {
    *("limit", "extend_at", "end_at", "attempts", "is_isolated", "cap_is_near", "pending"),
    *("turn", "watched_until", "goal", "status"),
}


def over_the_link(message: Any) -> list[Any]:
    (read,) = LineReader().feed(pack([message]))
    return read


@FUZZ
@given(event=events)
def test_an_event_survives_the_link(event: Event) -> None:
    kind, values = over_the_link(messages.event(event))
    assert kind == "event"
    assert messages.read_event(values) == event


@FUZZ
@given(lease=leases, was_releasing=st.booleans(), pid=st.none() | counts)
def test_a_lease_that_is_resumed_survives_the_link(
    lease: Lease, was_releasing: bool, pid: int | None
) -> None:
    holding = HeldMessage(lease=lease, table=TABLE, pid=pid)
    said = over_the_link(messages.resume(holding, was_releasing=was_releasing))
    assert said[:-1] == ["resume", was_releasing, pid, lease.goal.value, lease.status.value]
    read = messages.read_lease(said[-1])
    for field in fields(Lease):
        if field.name not in BOOKS_OWN:
            assert getattr(read, field.name) == getattr(lease, field.name), field.name


@FUZZ
@given(queue=queues, channel=counts)
def test_a_queue_that_is_consumed_survives_the_link(queue: ConsumedQueue, channel: int) -> None:
    kind, number, (plain,) = over_the_link(messages.consume(channel, [queue]))
    assert (kind, number) == ("consume", channel)
    assert messages.read_queue(plain) == queue


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values[:-1],
        lambda values: [*values, 1],
        lambda values: ["no-such-kind", *values[1:]],
        lambda values: [None, *values[1:]],
        lambda values: [[], *values[1:]],
    ],
)
def test_an_invalid_event_breaks_the_link(spoil: Any) -> None:
    event = Event(
        kind=EventKind.LEASE_LOST,
        at=1.0,
        queue_url="q",
        message_id="m",
        task=None,
        task_id=None,
        receive_count=1,
        slack=math.inf,
    )
    _, values = over_the_link(messages.event(event))
    with pytest.raises(BrokenLink, match="event"):
        messages.read_event(spoil(values))


def test_terms_are_read_in_the_order_of_their_fields() -> None:
    known = LeaseTerms(visibility_timeout=30, threshold=10)
    assert messages.read_terms(list(astuple(known))) == known


def test_a_hello_survives_the_link() -> None:
    hello = Hello(pid=1, identity={"host": "h"}, token="secret")
    assert read_hello(over_the_link(hello.message())) == hello


def test_a_hello_does_not_show_its_token() -> None:
    assert "secret" not in repr(Hello(pid=1, token="secret"))


def test_a_message_of_another_shape_has_another_version() -> None:
    holding = HeldMessage(lease=lease_of("h"), table=TABLE)
    queue = ConsumedQueue(name="q", url="q", lease_url="q", terms=LeaseTerms.of(30))
    said = (
        messages.consume(1, [queue]),
        messages.lease_fields(holding.lease),
        messages.resume(holding, was_releasing=False),
        messages.event(Event.of(EventKind.LEASE_EXTENDED, holding.lease, 0.0)),
        Hello(pid=1).message(),
    )
    # The messages with many fields. If this fails, increase VERSION and put the new checksum here.
    shapes = crc32(repr([shape(each) for each in said]).encode())
    # The same holds for the table, whose size changes with its layout.
    assert (VERSION, shapes, Table.size_for(1_000)) == (18, 2_479_939_019, 104_064)


def shape(value: object) -> object:
    """Return the number and names of a message's fields, at every level."""
    if isinstance(value, dict):
        return sorted(value)
    return [shape(each) for each in value] if isinstance(value, (list, tuple)) else None


def test_a_hello_of_another_version_advises_a_restart() -> None:
    with pytest.raises(BrokenLink, match=rf"99.*{VERSION}.*restart the worker"):
        read_hello(["hello", 99, {"what": "ever"}])


@pytest.mark.parametrize("message", [["over", 1], ["hello"], ["hello", VERSION, []]])
def test_a_first_message_that_is_not_a_hello_breaks_the_link(message: list[Any]) -> None:
    with pytest.raises(BrokenLink):
        read_hello(message)

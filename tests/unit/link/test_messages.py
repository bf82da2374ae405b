"""The messages of the link: they arrive whole, unchanged and in order, or the link is broken.

Neither end waits for the other. If a worker does not read, the ends of leases and the events wait,
but log lines do not. A keeper's log appears in the worker's, and follows its configuration.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import fields
from mmap import mmap
from typing import Any
from zlib import crc32

import pytest
from botocore import UNSIGNED
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.current.table import REACH, Table
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.link import frames, messages
from celery_sqs_heartbeat.link.frames import BrokenLink, LineReader
from celery_sqs_heartbeat.link.held_messages import HeldMessage
from celery_sqs_heartbeat.link.messages import ROOT, VERSION, Hello, LinkHandler, read_hello
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.fuzz.shapes import FUZZ
from tests.support.leases import lease_of
from tests.unit.link.pairs import Pair, pack
from tests.unit.link.pairs import pair as pair

TABLE = Table(mmap(-1, Table.size_for(REACH)))
LINE = ("log", {"text": "a line"})
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def over_the_link(message: Any) -> list[Any]:
    (read,) = LineReader().feed(pack([message]))
    return read


# -- Lines ---------------------------------------------------------------------------------------


@FUZZ
@given(
    written=st.lists(st.tuples(st.text(), plain, plain).map(list), max_size=12),
    cuts=st.lists(st.integers(0, 400)),
)
def test_messages_are_the_same_in_whatever_pieces_they_arrive(
    written: list[list[Any]], cuts: list[int]
) -> None:
    line = pack(written)
    ends = [*sorted(min(cut, len(line)) for cut in cuts), len(line)]
    reader, read, begin = LineReader(), [], 0
    for end in ends:
        read += reader.feed(line[begin:end])
        begin = end
    assert read == written


@pytest.mark.parametrize("value", ["\ud800", "\0", math.inf, 1 << 70, "ü💥", "two\nlines"])
def test_a_value_survives_in_a_line_of_json_that_a_stranger_can_read(value: object) -> None:
    assert over_the_link(("kind", value)) == ["kind", value]
    (line,) = pack([("kind", value)]).splitlines()
    assert json.loads(line) == ["kind", value]


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
        *(b"\xff\xfe", b"[", b"", b"1", b"null", b"{}", b'"text"', b"[]", b"[1]", b"[null]"),
        *(b'["one"],["two"]', b'["good"]\n[null]', b'["half"\n"half"]', b"[" * 200_000),
    ],
)
def test_a_line_that_is_not_a_message_breaks_the_link(line: bytes) -> None:
    with pytest.raises(BrokenLink):
        LineReader().feed(line + b"\n")


# -- Wires ---------------------------------------------------------------------------------------


def test_an_end_that_does_not_read_delays_nothing_and_gets_each_message_once(pair: Pair) -> None:
    written = list(pair.fill())
    for number in range(50):
        written.append(("late", number))
        pair.wire.post(written[-1])
        assert not pair.wire.flush()
    assert pair.wire.waiting >= len(pack(written[-50:]))
    with pytest.raises(TypeError):
        pair.wire.post(("bad", object()))
    read: list[list[Any]] = []
    while pair.wire.waiting or len(read) < len(written):
        read += pair.far.read(70)
        pair.wire.flush()
    assert read == [list(each) for each in written]
    assert pair.wire.flush()
    pair.wire.send(("over", 1))
    assert pair.far.read() == [["over", 1]]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"", []),
        (pack([("drop", 1)]), [["drop", 1]]),
        (pack([("drop", 1), ("drop", 2)])[:-1], [["drop", 1]]),
    ],
)
def test_whole_messages_before_the_end_count(pair: Pair, sent: bytes, read: list[Any]) -> None:
    assert pair.wire.receive() == []
    pair.far.send(sent)
    pair.far.close()
    assert (pair.wire.receive() or []) == read
    assert pair.wire.receive() is None
    assert pair.wire.is_broken


def test_a_broken_wire_sends_nothing_and_raises_nothing(pair: Pair) -> None:
    pair.far.close()
    pair.wire.send(("over", 1))
    assert pair.wire.is_broken
    assert not pair.wire.flush()
    pair.wire.close()
    assert pair.wire.fileno() == -1
    pair.wire.post(("over", 1))
    assert not pair.wire.flush()
    assert pair.wire.receive() is None


def test_log_lines_are_left_out_while_the_worker_does_not_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, filling = pair.wire, len(pair.fill())
    monkeypatch.setattr(frames, "MOST_WAITING", sent.waiting + 10 * len(pack([LINE])))
    for _ in range(30):
        sent.send(LINE)
    assert sent.waiting == frames.MOST_WAITING
    assert sent.take_left_out() == 0
    for number in range(20):
        for message in (("over", number), ("event", number), ("stats", {}), LINE):
            sent.send(message)
    read = [each for each in pair.read_all()[filling:] if each[0] != "log"]
    assert read == [[kind, number] for number in range(20) for kind in ("over", "event")]
    assert [sent.take_left_out(), sent.take_left_out()] == [40, 0]


# -- Messages ------------------------------------------------------------------------------------

texts, seconds, counts = st.text(max_size=12), st.floats(allow_nan=False), st.integers(0, 1 << 40)
#: By the text of a field's type. A field of a new type needs an entry.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": counts,
    "float": seconds,
    "bool": st.booleans(),
    "str | None": st.none() | texts,
    "int | None": st.none() | counts,
    "float | None": st.none() | seconds,
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "EventKind": st.sampled_from(EventKind),
    "Action | None": st.none() | st.sampled_from(Action),
    "Outcome | None": st.none() | st.sampled_from(Outcome),
    "Goal": st.sampled_from(Goal),
    "LeaseStatus": st.sampled_from(LeaseStatus),
    "Mapping[str, Sequence[str]]": st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of a dataclass."""
    return st.builds(
        kind, **{field.name: VALUES[str(field.type)] for field in fields(kind) if field.init}
    )


VALUES["LeaseTerms"] = any_of(LeaseTerms)
VALUES["Mapping[str, LeaseTerms]"] = st.dictionaries(texts, VALUES["LeaseTerms"], max_size=2)
#: Fields of a lease that are sent beside the others, or that a new book works out again.
BOOKS_OWN = {
    *("limit", "extend_at", "end_at", "attempts", "is_isolated", "cap_is_near", "pending"),
    *("turn", "watched_until", "goal", "status", "is_deleted"),
}


@FUZZ
@given(event=any_of(Event), lease=any_of(Lease), queue=any_of(ConsumedQueue), sent=st.booleans())
def test_events_leases_and_queues_survive_the_link(
    event: Event, lease: Lease, queue: ConsumedQueue, sent: bool
) -> None:
    kind, values = over_the_link(messages.event(event))
    assert (kind, messages.read_event(values)) == ("event", event)
    kind, channel, (given_queue,) = over_the_link(messages.consume(7, [queue]))
    assert (kind, channel, messages.read_queue(given_queue)) == ("consume", 7, queue)
    held = HeldMessage(lease=lease, table=TABLE, pid=4711)
    *said, values = over_the_link(messages.resume(held, was_releasing=sent))
    assert said == ["resume", sent, 4711, lease.goal.value, lease.status.value]
    read = messages.read_lease(values)
    for field in fields(Lease):
        if field.name not in BOOKS_OWN:
            assert getattr(read, field.name) == getattr(lease, field.name), field.name


def test_an_invalid_event_breaks_the_link() -> None:
    lost = Event.of(EventKind.LEASE_LOST, lease_of("h"), 0.0)
    _, values = over_the_link(messages.event(lost))
    place = values.index(EventKind.LEASE_LOST.value)
    before, after = values[:place], values[place + 1 :]
    for spoiled in (
        values[:-1],
        [*values, 1],
        [*before, "no-such-kind", *after],
        [*before, [], *after],
    ):
        with pytest.raises(BrokenLink, match="event"):
            messages.read_event(spoiled)


def test_a_hello_survives_the_link_and_does_not_show_its_token() -> None:
    hello = Hello(pid=1, identity={"host": "h"}, token="secret")
    assert read_hello(over_the_link(hello.message())) == hello
    assert "secret" not in repr(hello)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (["hello", 99, {"what": "ever"}], rf"99.*{VERSION}.*restart the worker"),
        (["over", 1], "not a hello"),
        (["hello"], "not a hello"),
        (["hello", VERSION, []], "uses version"),
    ],
)
def test_a_first_message_that_is_no_hello_of_this_version_breaks_the_link(
    message: list[Any], said: str
) -> None:
    with pytest.raises(BrokenLink, match=said):
        read_hello(message)


def test_a_message_of_another_shape_has_another_version() -> None:
    held = HeldMessage(lease=lease_of("h"), table=TABLE)
    queue = ConsumedQueue(name="q", url="q", lease_url="q", terms=LeaseTerms.of(30))
    said = (
        messages.consume(1, [queue]),
        messages.lease_fields(held.lease),
        messages.resume(held, was_releasing=False),
        messages.event(Event.of(EventKind.LEASE_EXTENDED, held.lease, 0.0)),
        Hello(pid=1).message(),
    )
    # The messages with many fields. If this fails, increase VERSION and put the new checksum here.
    shapes = crc32(repr([shape(each) for each in said]).encode())
    # The same holds for the table, whose size changes with its layout.
    assert (VERSION, shapes, Table.size_for(1_000)) == (20, 3_061_489_780, 104_064)


def shape(value: object) -> object:
    """Return the number and names of a message's fields, at every level."""
    if isinstance(value, dict):
        return sorted(value)
    return [shape(each) for each in value] if isinstance(value, (list, tuple)) else None


# -- How a queue is reached ----------------------------------------------------------------------


def config(**options: Any) -> BrokerConfig:
    keys = {"access_key": "key", "secret_key": "secret"}
    return BrokerConfig(endpoint_url="http://x", region="x", use_ssl=False, **keys, **options)


@FUZZ
@given(value=plain)
def test_a_keeper_reaches_a_queue_as_its_worker_does(value: Any) -> None:
    given_config = config(
        client_config={"signature_version": UNSIGNED, "retries": (1, [2]), "any": value},
        predefined={"work": {"url": "https://sqs/1/work", "backoff_tasks": ["a"]}},
        sts={"sts_role_arn": None, "sts_token_timeout": 900.5},
    )
    *said, plain_config = over_the_link(messages.reach(given_config, "url", 10.0, "address"))
    assert said == ["reach", "url", 10.0, "address"]
    read = messages.read_config(plain_config)
    assert read == given_config
    assert read.client_config["signature_version"] is UNSIGNED
    assert isinstance(read.client_config["retries"], tuple)


@pytest.mark.parametrize("value", [b"topsecret", {"topsecret"}, object])
def test_an_option_that_is_not_plain_is_named_without_its_value(value: object) -> None:
    faulty = config(predefined={"work": {"session": ["plain", value]}})
    with pytest.raises(ConfigurationError) as refused:
        messages.reach(faulty, "url", 10.0, "address")
    text = str(refused.value)
    for said in ("predefined['work']['session']", type(value).__name__, "use strings, numbers"):
        assert said in text
    assert "topsecret" not in text


# -- The log -------------------------------------------------------------------------------------

NAME = f"{ROOT}.keeper.somewhere"


class KeepersLog:
    """A keeper's logger, whose lines its worker's log gets."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.logger = logging.Logger(NAME)
        self.logger.addHandler(LinkHandler(self.sent.append))

    def pass_on(self) -> None:
        for _, line in LineReader().feed(pack(self.sent)):
            messages.write_line(line)
        self.sent.clear()


@pytest.fixture
def keepers() -> KeepersLog:
    return KeepersLog()


@pytest.fixture
def workers() -> Iterator[logging.Logger]:
    """The worker's logger of the same name."""
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)
    logger.filters.clear()


def test_a_line_of_the_log_has_its_level_text_time_and_error(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture
) -> None:
    keepers.logger.warning("%d of %s 💥", 3, "100%s")
    (_, line) = keepers.sent[0]
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        keepers.logger.exception("it failed")
    keepers.pass_on()
    record = caplog.records[0]
    assert (record.name, record.levelno) == (NAME, logging.WARNING)
    assert record.getMessage() == "3 of 100%s 💥"
    assert record.created == line["created"]
    assert record.msecs == pytest.approx(record.created % 1 * 1000)
    assert "Traceback" in str(caplog.records[1].exc_text)
    assert "ZeroDivisionError: by nothing" in str(caplog.records[1].exc_text)


def test_the_workers_own_levels_and_filters_decide(
    keepers: KeepersLog, caplog: pytest.LogCaptureFixture, workers: logging.Logger
) -> None:
    workers.addFilter(lambda record: "secret" not in record.getMessage())
    for level in (logging.WARNING, logging.INFO):
        workers.setLevel(level)
        keepers.logger.info("at %d", level)
        keepers.logger.error("a secret")
        keepers.pass_on()
    assert caplog.messages == [f"at {logging.INFO}"]


def test_a_line_that_cannot_be_formatted_raises_nothing(
    keepers: KeepersLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    keepers.logger.error("%d", "no number")
    assert keepers.sent == []
    assert "no number" in capsys.readouterr().err

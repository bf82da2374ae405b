"""What a worker says to its keeper, and when: from threads, signal handlers and forks, too."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from unittest.mock import Mock, call

import pytest

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.link import messages, serving
from celery_sqs_heartbeat.link.frames import BrokenLink
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from tests.support.leases import lease_of
from tests.support.linked import CHANNEL, Queue
from tests.unit.link.ends import QUEUE, TERMS, Ends
from tests.unit.link.pairs import Pair, in_child


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_a_new_keeper_gets_orders_then_leases_and_receives_or_ends_only_after_them(
    ends: Ends,
) -> None:
    worker = ends.worker
    for order in (("reach", "a", 1), ("reach", "b", 1), ("reach", "a", 2), ("stop", 15)):
        worker.order(*order)
    worker.say("tick")
    with pytest.raises(TypeError):
        worker.order("reach", object())
    worker.consume(1, [queue("a"), queue("b")])
    worker.consume(2, [queue("c")])
    for wait in (7, 7):
        worker.follow(1, queue("a", wait=wait))
    worker.cancel(1, "b")
    worker.follow(1, queue("b", wait=7))
    worker.close(2)
    said = [each[0] for each in ends.elsewhere.inbox.messages]
    assert said[5:] == ["consume", "consume", "consume", "cancel", "close"]
    # More leases than fit into one frame. After a frame a keeper may handle other work.
    ends.play("receive m1..m15; done m1")
    worker.note_start("m2", 4711)
    after = Queue()
    worker.attach(after, [("hello",), ("gap", 1.0)])  # type: ignore[arg-type]
    first, leases, last = (
        [*after.messages][part] for part in (slice(5), slice(5, -2), slice(-2, None))
    )
    assert first[:4] == [["hello"], ["gap", 1.0], ["reach", "a", 2], ["reach", "b", 1]]
    assert first[4] == ["finished", [[QUEUE, "m1"]]]
    assert [(each[0], *each[2:4]) for each in leases[:3]] == [
        ("resume", None, "delete"),
        ("resume", 4711, "hold"),
        ("resume", None, "hold"),
    ]
    assert len(leases) == 15
    consume, stop = last
    (consumed,) = map(messages.read_queue, consume[2])
    assert (consume[:2], consumed.name, consumed.wait) == (["consume", 1], "a", 7)
    assert stop == ["stop", 15]
    worker.end_receiving()
    ended = Queue()
    worker.attach(ended, ())  # type: ignore[arg-type]
    assert [each[0] for each in ended.messages][-2:] == ["stop", "end"]


def queue(name: str, **more: Any) -> ConsumedQueue:
    return ConsumedQueue(name=name, url=name, lease_url=name, terms=TERMS, **more)


def test_starts_are_sent_with_the_next_message_or_by_a_push(ends: Ends) -> None:
    posted, flushed = list[str](), list[int]()
    wire = Mock(post=lambda message: posted.append(message[0]))
    wire.flush = lambda: flushed.append(len(posted)) or True
    ends.worker.attach(wire, ())
    ends.play("receive a; receive b")
    flushed.clear()
    ends.worker.note_start("a")
    assert (posted, flushed) == (["started"], [])
    ends.worker.done("a")
    assert (posted, flushed) == (["started", "done"], [2])
    ends.worker.note_start("b")
    ends.worker.push()
    assert flushed == [2, 3]


def test_a_delay_of_any_numeric_type_is_sent_in_seconds(ends: Ends) -> None:
    ends.play("receive m")
    assert ends.worker.release("m", Decimal("1.5"), "failed")  # type: ignore[arg-type]
    assert ends.elsewhere.inbox.messages[-1] == ["release", "m", 2, "failed"]


@pytest.mark.parametrize("delay", [math.inf, math.nan])
def test_a_delay_that_is_not_a_finite_number_releases_nothing(ends: Ends, delay: float) -> None:
    ends.play("receive m; exchange")
    for keeper in (ends.worker, ends.elsewhere.keeper):
        with pytest.raises((OverflowError, ValueError)):
            keeper.release("m", delay)
    ends.play("ending 0; quiet")


def test_only_events_that_a_worker_needs_are_reported(ends: Ends) -> None:
    ends.play("receive m; start m; push; take; +21 begins extend m; answers done; quiet")
    ends.play("+21 begins extend m; answers lost")
    ((_, values),) = ends.elsewhere.outbox.messages
    assert messages.read_event(values).kind is EventKind.LEASE_LOST
    ends.elsewhere.outbox.messages.clear()
    ends.play("drop m kept; take; steps")
    said = sorted(ends.elsewhere.outbox.messages)
    happened = messages.read_event(said[0][1])
    assert (happened.kind, happened.cause) == (EventKind.MESSAGE_LAPSING, "kept")
    assert said[1:] == [["over", "m"]]


@pytest.mark.parametrize(
    "message",
    [["done", "x"], ["drop", "x", ""], ["release", "x", 0, ""], ["started", "x", 0.0, 4711]],
)
def test_a_name_that_the_keeper_does_not_know_is_reported_as_ended(
    ends: Ends, message: list[Any]
) -> None:
    assert ends.elsewhere.end.take(message)
    assert [*ends.elsewhere.outbox.messages] == [["over", "x"]]


@pytest.mark.parametrize(
    "message",
    [
        ["resume", False, None, "hold", "owned", ["no", "field", []]],
        ["resume", False, None, "no", "owned", [*messages.lease_fields(lease_of("h"))]],
        ["finished", [1]],
        ["unanswered", [["no", "handle", "here"]]],
    ],
)
def test_an_invalid_message_breaks_the_link(ends: Ends, message: list[Any]) -> None:
    with pytest.raises(BrokenLink):
        ends.elsewhere.end.take(message)


@pytest.mark.parametrize(
    "message", [["done"], ["resume", False], ["release", "m", 1], ["drop", "m"], ["started"]]
)
def test_a_message_that_lacks_fields_is_not_ignored(ends: Ends, message: list[Any]) -> None:
    assert serving.is_about_leases(message)
    assert not ends.elsewhere.end.take(message)


def test_orders_about_receiving_are_handled(ends: Ends) -> None:
    reception = Mock()
    ends.elsewhere.end.reception = reception
    for order in (messages.consume(3, [queue("q")]), ["cancel", 3, "q"], ["close", 3], ["end"]):
        assert ends.elsewhere.end.take([*order])
    ((channel, queues),) = [each.args for each in reception.consume.mock_calls]
    assert (channel, list(queues)) == (3, [queue("q")])
    assert reception.mock_calls[1:] == [call.cancel(3, "q"), call.close(3), call.end()]


# -- Threads, handlers, processes ----------------------------------------------------------------


def test_in_a_forked_child_every_method_does_nothing(ends: Ends) -> None:
    worker, pair = ends.worker, Pair()
    worker.attach(pair.wire, ())
    ends.play("receive m; done m")
    pair.read_all()
    ends.play("arrive other; deliver")

    def does_nothing() -> bool:
        # As the attendant has every forked child do.
        worker.leave_to_parent()
        says = (worker.done, worker.release, worker.note_start, worker.let_expire, worker.disown)
        assert not any(say("m") for say in says)
        worker.allow(CHANNEL, lambda: (1, 1))
        worker.cancel(CHANNEL, "q")
        worker.close(CHANNEL)
        worker.end_receiving()
        asked = (worker.owns("m"), worker.is_lost("m"), worker.find("m"), worker.snapshot())
        assert asked == (True, False, None, ())
        worker.say("tick")
        worker.order("pool", [])
        return not (worker.pull() or worker.is_disowned("m") or worker.defer(lambda: None))

    assert in_child(does_nothing)
    assert pair.read_all() == []
    assert worker.pull()
    ends.elsewhere.read_rooms()
    assert ends.elsewhere.limit == 0
    pair.close()

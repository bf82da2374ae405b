"""Which polls are open, by the room for messages and the answers of the queues."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from celery_sqs_heartbeat.keeper import long_polls as module
from celery_sqs_heartbeat.keeper.long_polls import Raw, Receiving, Source
from tests.support.waiting import PATIENCE

EMPTY: list[Raw] = []


def some(count: int) -> list[Raw]:
    return [{"MessageId": str(number)} for number in range(count)]


class Polls:
    """Queues whose polls are open until the test answers them."""

    def __init__(self, *names: str, room: int) -> None:
        self.room = room
        self.taken: list[tuple[str, int]] = []
        self._answers: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in names}
        self._open: dict[str, list[int]] = {name: [] for name in names}
        self._changed = threading.Condition()
        self.receiving = Receiving(
            [Source(name, lambda count, name=name: self._poll(name, count)) for name in names],  # type: ignore[misc]
            room=lambda: self.room,
            take=self.take,
            jitter=lambda: 0.0,
        )
        self.receiving.fill()

    def _poll(self, name: str, count: int) -> Sequence[Raw]:
        with self._changed:
            self._open[name].append(count)
            self._changed.notify_all()
        answer = self._answers[name].get(timeout=PATIENCE)
        with self._changed:
            self._open[name].remove(count)
            self._changed.notify_all()
        if isinstance(answer, Exception):
            raise answer
        messages: Sequence[Raw] = answer
        return messages

    def take(self, source: Source, messages: Sequence[Raw], sent_at: float) -> None:
        if messages[0] is None:
            raise ZeroDivisionError
        with self._changed:
            self.taken.append((source.queue_url, len(messages)))
            self.room -= len(messages)
            self._changed.notify_all()

    def grow(self, room: int) -> None:
        self.room += room
        self.receiving.fill()

    def answer(self, name: str, answer: Any) -> None:
        self._answers[name].put(answer)

    def wait_for(self, **polls: list[int]) -> None:
        """Wait until these polls are open, by how many messages they ask for."""
        with self._changed:
            is_so = lambda: all(sorted(self._open[name]) == polls[name] for name in polls)  # noqa: E731
            assert self._changed.wait_for(is_so, PATIENCE), self._open

    def wait_for_taken(self, *taken: tuple[str, int]) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: Counter(self.taken) == Counter(taken), PATIENCE
            ), self.taken

    def counts(self) -> list[int]:
        with self._changed:
            return sorted(count for counts in self._open.values() for count in counts)

    def end(self) -> None:
        self.receiving.stop()
        for answers in self._answers.values():
            for _ in range(module.MAX_POLLS):
                answers.put(EMPTY)
        assert self.receiving.join(PATIENCE)


@pytest.fixture
def polls(request: pytest.FixtureRequest) -> Iterator[Polls]:
    names, room = request.param
    polls = Polls(*names, room=room)
    yield polls
    polls.end()


def of(*names: str, room: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("polls", [(names, room)], indirect=True, ids=[""])


@of("a", room=25)
def test_a_queue_alone_asks_for_as_many_as_sqs_returns(polls: Polls) -> None:
    polls.wait_for(a=[10])


@of("a", room=3)
def test_a_queue_alone_asks_for_no_more_than_there_is_room_for(polls: Polls) -> None:
    polls.wait_for(a=[3])
    polls.answer("a", some(2))
    polls.wait_for(a=[1])


@of("a", room=0)
def test_without_room_no_poll_begins_until_there_is_some(polls: Polls) -> None:
    assert polls.counts() == []
    polls.grow(2)
    polls.wait_for(a=[2])
    polls.answer("a", some(2))
    polls.wait_for_taken(("a", 2))
    polls.wait_for(a=[])


@of(*(f"q{number}" for number in range(100)), room=8)
def test_each_of_a_hundred_queues_keeps_one_poll_for_one_message(polls: Polls) -> None:
    polls.wait_for(**{f"q{number}": [1] for number in range(100)})


@of("a", room=100)
def test_a_full_answer_opens_more_polls_up_to_four(polls: Polls) -> None:
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for(a=[10] * 4)
    polls.answer("a", some(10))
    polls.wait_for_taken(("a", 10), ("a", 10))
    polls.wait_for(a=[10] * 4)


@of("a", room=100)
def test_an_answer_that_is_not_full_closes_them_again(polls: Polls) -> None:
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for(a=[10] * 4)
    for left in (3, 2, 1):
        polls.answer("a", some(9))
        polls.wait_for(a=[10] * left)


@of("a", room=24)
def test_all_polls_of_a_queue_ask_for_no_more_than_there_is_room_for(polls: Polls) -> None:
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for(a=[4, 10])


@of("busy", "b", "c", "d", "e", "f", room=8)
def test_idle_queues_take_no_room_from_a_busy_one(polls: Polls) -> None:
    polls.wait_for(busy=[1], b=[1], c=[1], d=[1], e=[1], f=[1])
    polls.answer("busy", some(1))
    polls.wait_for(busy=[7], b=[1], f=[1])


@of("a", "b", room=2)
def test_busy_queues_share_the_room(polls: Polls) -> None:
    polls.wait_for(a=[1], b=[1])
    polls.answer("a", some(1))
    polls.wait_for_taken(("a", 1))
    # Another poll of it, because there is room for one message.
    polls.wait_for(a=[1], b=[1])
    polls.answer("b", some(1))
    polls.wait_for(a=[1], b=[])
    polls.answer("a", some(1))
    polls.wait_for(a=[], b=[])
    polls.wait_for_taken(("a", 1), ("a", 1), ("b", 1))
    polls.grow(17)
    polls.wait_for(a=[8], b=[8])


@of("a", "b", room=1)
def test_queues_take_turns_when_there_is_room_for_one_message(polls: Polls) -> None:
    for _ in range(3):
        polls.wait_for(a=[1], b=[1])
        polls.answer("a", some(1))
        polls.wait_for(a=[], b=[1])
        polls.answer("b", some(1))
        polls.wait_for(a=[], b=[])
        polls.grow(2)


@of("a", room=5)
def test_a_failed_poll_is_repeated_after_a_pause_and_logged_once_for_each_fault(
    polls: Polls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    for _ in range(3):
        polls.wait_for(a=[5])
        polls.answer("a", OSError("connection refused"))
    polls.wait_for(a=[5])
    polls.answer("a", some(1))
    polls.wait_for(a=[4])
    assert [record.getMessage() for record in caplog.records] == [
        "sqs-heartbeat: receiving from a fails (OSError: connection refused); it is tried again",
        "sqs-heartbeat: receiving from a works again",
    ]


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 0.5), (1, 1.0), (4, 8.0), (5, 15.0), (50, 15.0)]
)
def test_pauses_after_failed_polls_double_up_to_half_a_minute(failures: int, pause: float) -> None:
    source = Source("a", lambda count: EMPTY)
    receiving = Receiving([source], room=lambda: 1, take=lambda *_: None, jitter=lambda: 0.0)
    source.failures = failures
    assert receiving.pause_after(source, "any") == pause


def test_a_stop_ends_the_pause_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 100 * PATIENCE)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 100 * PATIENCE)
    polls = Polls("a", room=5)
    polls.wait_for(a=[5])
    polls.answer("a", OSError())
    polls.wait_for(a=[])
    polls.end()


@of("a", room=5)
def test_the_answer_of_a_poll_that_is_open_at_the_stop_is_taken(polls: Polls) -> None:
    polls.wait_for(a=[5])
    polls.receiving.stop()
    assert not polls.receiving.join(0)
    polls.answer("a", some(2))
    assert polls.receiving.join(PATIENCE)
    assert polls.taken == [("a", 2)]
    assert polls.counts() == []


@of("a", room=5)
def test_an_error_in_taking_an_answer_ends_no_poll(
    polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    polls.wait_for(a=[5])
    polls.answer("a", [None, None])
    polls.answer("a", some(2))
    polls.wait_for_taken(("a", 2))
    assert "2 received messages of a could not be taken" in caplog.text


def test_polls_begin_once_the_system_grants_threads_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        polls = Polls("a", room=5)
    assert "receiving from a fails (the system grants no thread" in caplog.text
    polls.receiving.fill()
    polls.wait_for(a=[5])
    polls.end()

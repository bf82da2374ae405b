"""Which polls are open, by the room for messages and the answers of the queues."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from celery_sqs_heartbeat.sqs import long_polls as module
from celery_sqs_heartbeat.sqs.long_polls import Poll, Raw, Receiving, Source
from celery_sqs_heartbeat.sqs.sending import CallGivenUp
from tests.support.waiting import PATIENCE, wait_until

EMPTY: list[Raw] = []
FOREVER = 100 * PATIENCE


def some(count: int) -> list[Raw]:
    return [{"MessageId": str(number)} for number in range(count)]


class Polls:
    """Queues whose polls are open until the test answers them.

    Attributes:
        most: How many messages a poll of any queue may ask for.
        least: From how many messages on a poll beside others is made.
        least_alone: From how many messages on the only poll of a busy queue is made at once.
        sent: All polls so far.
    """

    def __init__(self, *names: str, room: int, pause: float = 0.0) -> None:
        self.room = room
        self.most, self.least, self.least_alone = 10, 1, 1
        self.sent: list[Poll] = []
        self._taken: list[tuple[Poll, int]] = []
        self._answers: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in names}
        self._changed = threading.Condition()
        self.sources = [
            Source(
                name,
                self._poll,
                most=lambda: self.most,
                least=lambda is_beside: self.least if is_beside else self.least_alone,
                pause=pause,
            )
            for name in names
        ]
        self.receiving = Receiving(
            self.sources, room=lambda: self.room, take=self.take, jitter=lambda: 0.0
        )
        self.receiving.fill()

    def _poll(self, poll: Poll) -> Sequence[Raw]:
        with self._changed:
            self.sent.append(poll)
            self._changed.notify_all()
        answer = self._answers[poll.source.name].get(timeout=PATIENCE)
        if isinstance(answer, Exception):
            raise answer
        messages: Sequence[Raw] = answer
        return messages

    def take(self, poll: Poll, messages: Sequence[Raw]) -> None:
        if messages[0] is None:
            raise ZeroDivisionError
        with self._changed:
            self._taken.append((poll, len(messages)))
            self.room -= len(messages)

    @property
    def taken(self) -> list[tuple[str, int]]:
        """The queue of each answer that was taken, and how many messages it had."""
        return [(poll.source.name, count) for poll, count in tuple(self._taken)]

    def grow(self, room: int) -> None:
        self.room += room
        self.receiving.fill()

    def answer(self, name: str, answer: Any) -> None:
        self._answers[name].put(answer)

    def wait_for(self, **polls: list[int]) -> None:
        """Wait until these polls are open, by how many messages they ask for."""
        wait_until(
            lambda: all(self._counts(name) == polls[name] for name in polls),
            tell=lambda: self.receiving.polls,
        )

    def wait_for_sent(self, count: int) -> None:
        """Wait until so many polls were sent in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.sent) == count, PATIENCE), self.sent

    def wait_for_taken(self, *taken: tuple[str, int]) -> None:
        """Wait until these answers are taken, and the room of their polls is booked no more."""
        wait_until(
            lambda: (
                Counter(self.taken) == Counter(taken)
                and not any(poll in self.receiving.polls for poll, _ in self._taken)
            ),
            tell=lambda: self.taken,
        )

    def counts(self) -> list[int]:
        return sorted(count for name in self._answers for count in self._counts(name))

    def _counts(self, name: str) -> list[int]:
        """Return what the open polls of a queue ask for, without those that wait to be sent."""
        polls = [poll for poll in self.receiving.polls if poll.source.name == name]
        with self._changed:
            return sorted(poll.count for poll in polls if poll in self.sent and not poll.is_over)

    def end(self) -> None:
        self.receiving.stop()
        for answers in self._answers.values():
            for _ in range(module.MAX_POLLS + 1):
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
def test_a_poll_beside_another_of_its_queue_waits_for_a_second(polls: Polls) -> None:
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for(a=[10] * 4)
    assert sorted(poll.longest_wait for poll in polls.sent) == [1, 1, 1, 20, 20]


@of("a", room=24)
def test_another_poll_begins_once_there_is_room_enough_for_it(polls: Polls) -> None:
    polls.least = 5
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for_sent(2)
    polls.receiving.fill()
    assert polls.counts() == [10]
    polls.grow(1)
    polls.wait_for(a=[5, 10])


@of("a", room=10)
def test_the_only_poll_of_a_busy_queue_waits_for_more_room(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GATHER_SECONDS", FOREVER)
    polls.least_alone = 10
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for_taken(("a", 10))
    polls.grow(3)
    polls.grow(4)
    assert len(polls.sent) == 1
    polls.grow(9)
    polls.wait_for_sent(2)
    assert polls.sent[1].count == 10
    polls.receiving.fill()
    polls.wait_for(a=[6, 10])


@of("a", room=10)
def test_it_does_not_wait_long(polls: Polls) -> None:
    polls.least_alone = 10
    polls.wait_for(a=[10])
    polls.answer("a", some(10))
    polls.wait_for_taken(("a", 10))
    polls.grow(3)
    polls.wait_for(a=[3])


def use_both_slots(polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first poll bring two messages. The next one may wait long for room for two."""
    monkeypatch.setattr(module, "_GATHER_PART", 1e9)
    polls.wait_for(a=[2])
    polls.answer("a", some(2))
    polls.wait_for_taken(("a", 2))


def wait_for_a_second(polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a poll for one message wait for room for a second."""
    monkeypatch.setattr(module, "_GATHER_SECONDS", FOREVER)
    use_both_slots(polls, monkeypatch)
    polls.grow(1)


@of("a", room=2)
def test_a_poll_for_one_message_waits_for_room_for_a_second(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_a_second(polls, monkeypatch)
    assert len(polls.sent) == 1
    polls.grow(1)
    polls.wait_for(a=[2])


@of("a", room=2)
def test_after_a_wait_that_brought_no_room_four_polls_for_one_message_are_sent_at_once(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_both_slots(polls, monkeypatch)
    polls.grow(1)
    polls.wait_for(a=[1])
    monkeypatch.setattr(module, "_GATHER_SECONDS", FOREVER)
    for sent in range(3, 7):
        polls.answer("a", some(1))
        polls.wait_for(a=[])
        polls.grow(1)
        polls.wait_for_sent(sent)
    polls.answer("a", some(1))
    polls.wait_for(a=[])
    polls.grow(1)
    assert len(polls.sent) == 6
    polls.grow(1)
    polls.wait_for(a=[2])


@of("a", room=20)
def test_a_queue_that_wants_no_messages_keeps_one_poll_for_one_message(polls: Polls) -> None:
    polls.wait_for(a=[10])
    polls.most = 0
    polls.answer("a", some(10))
    for sent in (2, 3):
        polls.wait_for_sent(sent)
        assert polls.counts() == [1]
        polls.answer("a", some(1))


def test_the_next_poll_begins_after_a_pause_if_an_answer_was_empty() -> None:
    polls = Polls("a", room=5, pause=FOREVER)
    polls.wait_for(a=[5])
    polls.answer("a", some(1))
    polls.wait_for(a=[4])
    polls.answer("a", EMPTY)
    polls.wait_for(a=[])
    polls.receiving.fill()
    assert polls.counts() == []
    # The stop ends the pause.
    polls.end()
    assert len(polls.sent) == 2


@of("a", "b", room=20)
def test_a_queue_that_is_removed_is_not_polled_again_until_it_is_added(polls: Polls) -> None:
    polls.wait_for(a=[1], b=[1])
    polls.receiving.remove("a")
    polls.answer("a", some(1))
    polls.wait_for_taken(("a", 1))
    polls.answer("b", some(1))
    polls.wait_for(a=[], b=[8, 10])
    polls.receiving.add(*polls.sources)
    polls.wait_for(a=[1])


@of("a", room=15)
def test_a_poll_that_hangs_does_not_keep_its_queue_from_being_polled(polls: Polls) -> None:
    polls.wait_for(a=[10])
    (poll,) = polls.receiving.polls
    polls.receiving.fill()
    assert polls.counts() == [10]
    poll.sent_at -= 2 * module.ANSWER_SECONDS + 1
    polls.receiving.fill()
    polls.wait_for(a=[5, 10])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@of("a", room=5)
def test_an_error_that_ends_a_thread_leaves_no_poll_open(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> float:
        raise ZeroDivisionError

    polls.wait_for(a=[5])
    with monkeypatch.context() as patch:
        patch.setattr(Receiving, "_note_failure", fail)
        polls.answer("a", OSError())
        wait_until(lambda: not polls.receiving.polls)
    polls.receiving.fill()
    polls.wait_for(a=[5])


@of("a", room=5)
def test_a_poll_that_was_given_up_has_not_failed(
    polls: Polls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    polls.wait_for(a=[5])
    polls.answer("a", CallGivenUp())
    polls.wait_for_sent(2)
    polls.wait_for(a=[5])
    assert caplog.records == []


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
    # A queue asks for at most twice as many as its last answer had.
    polls.wait_for(busy=[1, 2, 2, 2], b=[1], f=[1])


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
    polls.wait_for(a=[2] * 4, b=[2] * 4)


@of("a", "b", room=3)
def test_a_poll_that_takes_the_room_of_another_queue_waits_for_a_second(polls: Polls) -> None:
    polls.least = 10
    polls.wait_for(a=[1], b=[1])
    polls.answer("a", some(1))
    polls.wait_for(a=[2], b=[1])
    assert [poll.longest_wait for poll in polls.sent] == [20, 20, 1]
    polls.answer("a", EMPTY)
    polls.wait_for(a=[1], b=[1])
    polls.grow(8)
    polls.answer("a", some(1))
    # Much room is left for the other queue.
    polls.wait_for(a=[2], b=[1])
    assert {poll.longest_wait for poll in polls.sent[3:]} == {20}


@of("a", room=2)
def test_a_poll_that_waits_for_room_is_not_sent_after_the_end(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_a_second(polls, monkeypatch)
    (poll,) = polls.receiving.polls
    polls.receiving.stop()
    poll.grown.set()
    assert polls.receiving.join(PATIENCE)
    assert len(polls.sent) == 1


@of("a", "b", room=1)
def test_so_does_one_whose_room_grows_before_it_is_sent(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GATHER_SECONDS", FOREVER)
    polls.least_alone = 4
    polls.wait_for(a=[1], b=[1])
    polls.answer("a", some(1))
    polls.wait_for_taken(("a", 1))
    polls.grow(1)
    polls.grow(3)
    polls.wait_for(a=[4], b=[1])
    assert polls.sent[-1].longest_wait == 1


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
        "sqs-heartbeat: receiving from queue a fails and is retried: OSError: connection refused",
        "sqs-heartbeat: receiving from queue a works again",
    ]


def test_pauses_after_failed_polls_double_up_to_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    polls = Polls("a", room=5)
    monkeypatch.setattr(Receiving, "_pause", lambda *args: pauses.append(args[-1]))
    for sent in range(1, 7):
        polls.wait_for_sent(sent)
        polls.answer("a", OSError())
    polls.wait_for_sent(7)
    # Half of them, by the lowest random number.
    assert pauses == [0.5, 1.0, 2.0, 2.5, 2.5, 2.5]
    polls.end()


@of("a", "b", room=2)
def test_a_queue_that_pauses_after_a_failure_leaves_its_room_to_the_others(
    polls: Polls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", FOREVER)
    monkeypatch.setattr(module, "LONGEST_PAUSE", FOREVER)
    polls.wait_for(a=[1], b=[1])
    polls.answer("a", some(1))
    polls.wait_for_sent(3)
    assert polls.sent[2].booked == 1
    polls.answer("a", OSError())
    wait_until(lambda: polls.sent[2].is_over)
    polls.answer("b", some(1))
    polls.wait_for_taken(("a", 1), ("b", 1))
    polls.grow(3)
    polls.wait_for(a=[], b=[1, 2])


def test_a_stop_ends_the_pause_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", FOREVER)
    monkeypatch.setattr(module, "LONGEST_PAUSE", FOREVER)
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
    assert "receiving from queue a fails and is retried: the system grants no thread" in caplog.text
    polls.receiving.fill()
    polls.wait_for(a=[5])
    polls.end()

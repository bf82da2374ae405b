"""Which polls are open: as many as there is room for, fair between queues, none lost in a fault."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from celery_sqs_heartbeat.sqs import long_polls as module
from celery_sqs_heartbeat.sqs.long_polls import Poll, Raw, Receiving, Source
from celery_sqs_heartbeat.sqs.sending import CallGivenUp
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.scripts import names_of, pairs, table

FOREVER = 100 * PATIENCE
ANSWERS: dict[str, Any] = {"failed": OSError("refused"), "given-up": CallGivenUp(), "bad": [None]}
ROOM = """
a queue alone asks for as many as SQS returns:
    queues a room=25; open a=10; waits 20
and for no more than there is room for:
    queues a room=3; open a=3; answer a 2; open a=1
without room no poll begins until there is some:
    queues a room=0; only 0; grow 2; open a=2; answer a 2; taken a=2; open a=
a full answer opens more polls up to four, which do not wait for long:
    queues a room=100; open a=10; answer a 10; open a=10,10,10,10; waits 1 1 1 20 20; answer a 10;
    taken a=10 a=10; open a=10,10,10,10
an answer that is not full closes them again:
    queues a room=100; open a=10; answer a 10; open a=10,10,10,10; answer a 9; open a=10,10,10;
    answer a 9; open a=10,10
all polls of a queue ask for no more than there is room for:
    queues a room=24; open a=10; answer a 10; open a=4,10
another poll begins once there is room enough for it:
    queues a room=24 least=5; open a=10; answer a 10; sent 2; fill; open a=10; grow 1; open a=5,10
the only poll of a busy queue waits for more room:
    queues a room=10 alone=10; gather; open a=10; answer a 10; taken a=10; grow 3; grow 4; only 1;
    grow 9; sent 2; fill; open a=6,10
but not for long:
    queues a room=10 alone=10; open a=10; answer a 10; taken a=10; grow 3; open a=3
a poll for one message waits for room for a second:
    queues a room=2; gather second; open a=2; answer a 2; taken a=2; gather; grow 1; only 1; grow 1;
    open a=2
after a wait that brought no room four polls for one message are sent at once:
    queues a room=2; gather second; open a=2; answer a 2; taken a=2; grow 1; open a=1; gather;
    answer a 1; open a=; grow 1; sent 3; answer a 1; open a=; grow 1; sent 4; answer a 1; open a=;
    grow 1; sent 5; answer a 1; open a=; grow 1; sent 6; answer a 1; open a=; grow 1; only 6;
    grow 1; open a=2
a queue that wants no messages keeps one poll for one message:
    queues a room=20; open a=10; most 0; answer a 10; sent 2; open a=1; answer a 1; sent 3; open a=1
the next poll begins after a pause if an answer was empty, and a stop ends the pause:
    queues a room=5 pause=long; open a=5; answer a 1; open a=4; answer a 0; open a=; fill; open a=;
    only 2
a poll that hangs does not keep its queue from being polled:
    queues a room=15; open a=10; fill; open a=10; hang; open a=5,10
the answer of a poll that is open at the stop is taken:
    queues a room=5; open a=5; stop; answer a 2; joined; taken a=2; only 1
a stop ends the pause after a failure:
    queues a room=5; pauses long; open a=5; answer a failed; open a=; only 1
"""
FAIR = """
each of a hundred queues keeps one poll for one message:
    queues q1..q100 room=8; sent 100; open q1=1 q50=1 q100=1
idle queues take no room from a busy one, which asks for twice as many as it got:
    queues a b c d e f room=8; open a=1 b=1 f=1; answer a 1; open a=1,2,2,2 b=1 f=1
busy queues share the room:
    queues a b room=2; open a=1 b=1; answer a 1; taken a=1; open a=1 b=1; answer b 1; open a=1 b=;
    answer a 1; open a= b=; taken a=1 a=1 b=1; grow 17; open a=2,2,2,2 b=2,2,2,2
queues take turns when there is room for one message:
    queues a b room=1; open a=1 b=1; answer a 1; open a= b=1; answer b 1; open a= b=; grow 2;
    open a=1 b=1; answer a 1; open a= b=1; answer b 1; open a= b=; grow 2; open a=1 b=1
what can not be shared equally is another queue's the next time:
    queues a b room=2; open a=1 b=1; answer a 1; taken a=1; open a=1 b=1; answer b 1; open a=1 b=;
    answer a 1; open a= b=; taken a=1 a=1 b=1; grow 4; open a=1 b=2; grow -10; answer a 1;
    answer b 2; open a= b=; taken a=1 a=1 a=1 b=1 b=2; grow 13; open a=2 b=1
a poll that takes the room of another queue does not wait for long:
    queues a b room=3 least=10; open a=1 b=1; answer a 1; open a=2 b=1; waits 1 20 20; answer a 0;
    open a=1 b=1; grow 8; answer a 1; open a=2 b=1; waits 1 20 20 20 20
nor does one whose room grows before it is sent:
    queues a b room=1 alone=4; gather; open a=1 b=1; answer a 1; taken a=1; grow 1; grow 3;
    open a=4 b=1; waits 1 20 20
a queue that is removed is not polled again until it is added:
    queues a b room=20; open a=1 b=1; remove a; answer a 1; taken a=1; answer b 1; open a= b=8,10;
    add; open a=1
a queue that pauses after a failure leaves its room to the others:
    queues a b room=2; pauses long; open a=1 b=1; answer a 1; sent 3; answer a failed; open a=;
    answer b 1; taken a=1 b=1; grow 3; open a= b=1,2
"""


class Polls:
    """Queues whose polls are open until the test answers them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.sent: list[Poll] = []
        self._taken: list[tuple[Poll, int]] = []
        self._changed = threading.Condition()

    def play(self, script: str) -> Polls:
        for step in script.split(";"):
            self._do(*step.split())
        return self

    def _do(self, verb: str, *words: str) -> None:
        match verb, words:
            case "queues", _:
                self._begin([each for word in words if "=" not in word for each in names_of(word)])
                for name, value in pairs([word for word in words if "=" in word]).items():
                    setattr(self, name, value)
                self.receiving.add(*self.sources)
            case "open", _:
                for name, counts in (word.split("=") for word in words):
                    wanted = sorted(map(int, filter(None, counts.split(","))))
                    wait_until(lambda name=name, wanted=wanted: self._counts(name) == wanted)
            case "answer", [name, what]:
                some = [{"MessageId": "m"}] * int(what) if what.isdigit() else ANSWERS[what]
                self._answers[name].put(some)
            case "taken", _:
                wait_until(lambda: self._has_taken(Counter(words)), tell=lambda: self._taken)
            case "sent", [count]:
                wait_until(lambda: len(self.sent) == int(count), tell=lambda: self.sent)
            case "only", [count]:
                assert len(self.sent) == int(count)
            case "waits", _:
                assert sorted(poll.longest_wait for poll in self.sent) == [*map(int, words)]
            case (("grow" | "fill"), _):
                self.room += sum(map(int, words))
                self.receiving.fill()
            case "most", [most]:
                self.most = int(most)
            case "gather", []:
                self._patch.setattr(module, "_GATHER_SECONDS", FOREVER)
            case "gather", _:
                self._patch.setattr(module, "_GATHER_PART", 1e9)
            case "pauses", [length]:
                for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
                    self._patch.setattr(module, name, FOREVER if length == "long" else 0.001)
            case "remove", [name]:
                self.receiving.remove(name)
            case "add", _:
                self.receiving.add(*self.sources)
            case "hang", _:
                self.receiving.polls[0].sent_at -= 2 * module.ANSWER_SECONDS + 1
                self.receiving.fill()
            case "stop", _:
                self.receiving.stop()
                assert not self.receiving.join(0)
            case "joined", _:
                assert self.receiving.join(PATIENCE)

    def _begin(self, names: Sequence[str]) -> None:
        self.room, self.most, self.least, self.alone, self.pause = 0, 10, 1, 1, ""
        self._answers: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in names}
        self.receiving = Receiving(room=lambda: self.room, take=self._take, jitter=lambda: 0.0)

    @property
    def sources(self) -> list[Source]:
        return [
            Source(
                name,
                self._poll,
                most=lambda: self.most,
                least=lambda is_beside: self.least if is_beside else self.alone,
                pause=FOREVER if self.pause else 0.0,
            )
            for name in self._answers
        ]

    def _poll(self, poll: Poll) -> Sequence[Raw]:
        with self._changed:
            self.sent.append(poll)
        answer: Any = self._answers[poll.source.name].get(timeout=PATIENCE)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    def _take(self, poll: Poll, messages: Sequence[Raw]) -> None:
        if messages[0] is None:
            raise ZeroDivisionError
        with self._changed:
            self._taken.append((poll, len(messages)))
            self.room -= len(messages)

    def _has_taken(self, wanted: Counter[str]) -> bool:
        taken = Counter(f"{poll.source.name}={count}" for poll, count in tuple(self._taken))
        return taken == wanted and not {poll for poll, _ in self._taken} & {*self.receiving.polls}

    def _counts(self, name: str) -> list[int]:
        """Return what the open polls of a queue ask for, without those that wait to be sent."""
        polls = [poll for poll in self.receiving.polls if poll.source.name == name]
        with self._changed:
            return sorted(poll.count for poll in polls if poll in self.sent and not poll.is_over)

    def end(self) -> None:
        self.receiving.stop()
        for answers in self._answers.values():
            for _ in range(module.MAX_POLLS + 1):
                answers.put([])
        assert self.receiving.join(PATIENCE)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Polls]]:
    polls = Polls(monkeypatch)
    yield polls.play
    polls.end()


Play = Callable[[str], Polls]


@table(ROOM)
def test_of_room(play: Play, script: str) -> None:
    play(script)


@table(FAIR)
def test_of_several_queues(play: Play, script: str) -> None:
    play(script)


def test_a_poll_that_waits_for_room_is_not_sent_after_the_end(play: Play) -> None:
    polls = play("queues a room=2; gather second; open a=2; answer a 2; taken a=2; gather; grow 1")
    (poll,) = polls.receiving.polls
    polls.receiving.stop()
    poll.grown.set()
    polls.play("joined; only 1")


def test_a_failed_poll_is_repeated_after_a_pause_and_logged_once_for_each_fault(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    polls = play("queues a room=5; pauses short; open a=5; answer a given-up; sent 2; open a=5")
    assert caplog.messages == []
    polls.play("answer a failed; sent 3; answer a failed; sent 4; open a=5; answer a 1; open a=4")
    assert caplog.messages == [
        "sqs-heartbeat: receiving from queue a fails and is retried: OSError: refused",
        "sqs-heartbeat: receiving from queue a works again",
    ]
    caplog.clear()
    polls.play("answer a bad; answer a 2; taken a=1 a=2")
    assert "1 received messages of a could not be taken" in caplog.text


def test_pauses_after_failed_polls_double_up_to_five_seconds(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(Receiving, "_pause", lambda *args: pauses.append(args[-1]))
    fails = "; ".join(f"sent {sent}; answer a failed" for sent in range(1, 6))
    play(f"queues a room=5; {fails}; sent 6")
    # Half of them, by the lowest random number.
    assert pauses == [0.5, 1.0, 2.0, 2.5, 2.5]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_polls_begin_again_after_an_error_that_ends_a_thread_and_once_there_are_threads(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> float:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        polls = play("queues a room=5; only 0")
    assert "receiving from queue a fails and is retried: the system grants no thread" in caplog.text
    polls.play("fill; open a=5")
    with monkeypatch.context() as patch:
        patch.setattr(Receiving, "_note_failure", refuse)
        polls.play("answer a failed")
        wait_until(lambda: not polls.receiving.polls)
    polls.play("fill; open a=5")

"""Polls that wait at the proxy until the test answers them."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import Any

from tests.support.faults import Answer, Body, Effect, Forward, error
from tests.support.proxy import FaultProxy
from tests.support.waiting import PATIENCE

_REFUSE: Effect = lambda body, forward: error(403, "AccessDeniedException", "no (injected)")  # noqa: E731


class HeldPoll:
    """A receive that has arrived at the proxy.

    Attributes:
        count: How many messages it asks for.
        waits: How long it asks to wait for them, in seconds.
    """

    def __init__(self, polls: HeldPolls, body: Body) -> None:
        self.queue: str = body["QueueUrl"].rpartition("/")[2]
        self.count: int = body["MaxNumberOfMessages"]
        self.waits: int = body["WaitTimeSeconds"]
        self._polls = polls
        self._effects: queue.SimpleQueue[Effect] = queue.SimpleQueue()

    def answer(self, count: int) -> None:
        """Answer with so many messages, which the server does not know."""
        answer = Answer.of({"Messages": [self._polls.new_message() for _ in range(count)]})
        self._end(lambda body, forward: answer)

    def forward(self) -> None:
        """Let the server answer."""
        self._end(lambda body, forward: forward(body))

    def refuse(self) -> None:
        """Answer with an error, after which boto3 does not try again."""
        self._end(_REFUSE)

    def wait(self, body: Body, forward: Forward) -> Answer:
        return self._effects.get(timeout=PATIENCE)(body, forward)

    def _end(self, effect: Effect) -> None:
        self._polls.open.remove(self)
        self._effects.put(effect)


class HeldPolls:
    """All polls that arrive at a proxy from now on.

    Attributes:
        open: Those that the test has not answered, the first one first.
    """

    def __init__(self, proxy: FaultProxy) -> None:
        self.open: list[HeldPoll] = []
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._is_over = False
        proxy.rule("ReceiveMessage", self._hold)

    def end(self) -> None:
        """Answer all polls, and those that are still to come, with nothing."""
        with self._lock:
            self._is_over = True
        for poll in tuple(self.open):
            poll.answer(0)

    def new_message(self) -> dict[str, Any]:
        number = next(self._ids)
        return {"MessageId": f"m{number}", "ReceiptHandle": f"r{number}", "Body": "{}"}

    def _hold(self, body: Body, forward: Forward) -> Answer:
        poll = HeldPoll(self, body)
        with self._lock:
            if self._is_over:
                return Answer.of({})
            self.open.append(poll)
        return poll.wait(body, forward)

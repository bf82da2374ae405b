"""A queue that has as many messages as a benchmark needs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from benchmarks.endless.template import Message, Template

#: The most messages of one receive (SQS API reference, ReceiveMessage).
_MAX_RECEIVED = 10

Reply = Callable[[list[Message]], None]


class Receive:
    """A receive that waits for messages.

    Attributes:
        is_gone: Whether its client has closed the connection.
    """

    def __init__(self, count: int, reply: Reply) -> None:
        self.count = count
        self.reply = reply
        self.is_gone = False
        self.timer: asyncio.TimerHandle | None = None


class Queue:
    """Messages by template, and counts of what happened to them.

    Attributes:
        latency: Seconds from the moment at which an answer is known until it is sent. Calls wait at
            the same time.
        is_endless: Whether every receive returns as many messages as it requests.
        confirms_all: Whether messages that were not received here can be extended.
        calls: Calls by operation.
        receives: When receives were answered, in monotonic seconds, and with how many messages.
        deletes: When messages were deleted, and how many.
    """

    def __init__(self) -> None:
        self.latency = 0.0
        self.is_endless = False
        self.confirms_all = False
        self.template = Template("@BODY@", "")
        self.calls: Counter[str] = Counter()
        self.receives: list[tuple[float, int]] = []
        self.deletes: list[tuple[float, int]] = []
        self._in_flight: set[str] = set()
        self._visible: deque[Message] = deque()
        self._waiting: deque[Receive] = deque()
        self._pace: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """How many messages are visible; 1,000 if there is no end of them."""
        return 1_000 if self.is_endless else len(self._visible)

    @property
    def in_flight(self) -> int:
        """How many messages are received and neither deleted nor released."""
        return len(self._in_flight)

    def set_source(self, *, is_endless: bool, count: int, every: float) -> None:
        """Change where messages come from.

        Args:
            count: Messages to add now.
            every: Seconds until another message is added, again and again; 0 adds none.
        """
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None
        self.is_endless = is_endless
        now = time.monotonic()
        # Before any is received: otherwise the first receive would get one message.
        self._visible.extend(self._new(now) for _ in range(count))
        self._serve()
        if every:
            self._add_at(asyncio.get_running_loop().time() + every, every)

    def add(self) -> None:
        """Add a message."""
        self._visible.append(self._new(time.monotonic()))
        self._serve()

    def receive(self, receive: Receive, wait: float) -> None:
        """Answer a receive at once, or when there are messages, or after `wait` seconds."""
        self._waiting.append(receive)
        self._serve()
        if receive in self._waiting:
            loop = asyncio.get_running_loop()
            receive.timer = loop.call_later(wait, self._expire, receive)

    def delete(self, handles: list[str]) -> None:
        """Delete messages. As at SQS, any other handle is ignored."""
        before = len(self._in_flight)
        self._in_flight.difference_update(handles)
        if deleted := before - len(self._in_flight):
            self.deletes.append((time.monotonic(), deleted))

    def change(self, handle: str, timeout: int) -> bool:
        """Extend or release a message. Return whether it is in flight."""
        if self.confirms_all:
            return True
        if handle not in self._in_flight:
            return False
        if timeout == 0:
            self._in_flight.remove(handle)
        return True

    def counts(self) -> dict[str, Any]:
        """Return all counts so far, as JSON."""
        return {
            "now": time.monotonic(),
            "calls": dict(self.calls),
            "received": sum(count for _, count in self.receives),
            "deleted": sum(count for _, count in self.deletes),
            "in_flight": self.in_flight,
            "visible": self.size,
        }

    def _serve(self) -> None:
        while self._waiting and (self.is_endless or self._visible):
            receive = self._waiting.popleft()
            if not receive.is_gone:
                self._answer(receive)

    def _answer(self, receive: Receive) -> None:
        now = time.monotonic()
        if receive.timer is not None:
            receive.timer.cancel()
        count = min(receive.count, _MAX_RECEIVED)
        visible = self._visible
        messages = [visible.popleft() for _ in range(min(count, len(visible)))]
        if self.is_endless:
            messages += [self._new(now) for _ in range(count - len(messages))]
        self._in_flight.update(message.handle for message in messages)
        self.receives.append((now, len(messages)))
        receive.reply(messages)

    def _expire(self, receive: Receive) -> None:
        if receive in self._waiting:
            self._waiting.remove(receive)
            self.receives.append((time.monotonic(), 0))
            receive.reply([])

    def _new(self, now: float) -> Message:
        return self.template.render(now, int(time.time() * 1000))

    def _add_at(self, when: float, every: float) -> None:
        """Add a message at a time of the event loop, and the next one `every` seconds later."""
        self._pace = asyncio.get_running_loop().call_at(when, self._add_paced, when, every)

    def _add_paced(self, when: float, every: float) -> None:
        self.add()
        self._add_at(when + every, every)

"""Gives received messages to the loops that wait for one, and knows which are in hand."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from celery_sqs_heartbeat.common import clock as clocks
from celery_sqs_heartbeat.consumer.received import Message
from celery_sqs_heartbeat.leases.received_as import RecentEnds

#: How often a loop that waits checks whether a poll is open, in seconds. Polls begin when there is
#: room for messages, but not if the system granted no thread then.
CHECK_SECONDS = 10.0


class HandOver:
    """The messages that wait for a loop, the loops that wait for a message, and those in hand.

    A consumer whose messages take minutes so receives no more than it can start at once, and one
    whose messages take milliseconds as many as it may.

    Args:
        most: The most messages in hand at once.
        clock: Monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = clocks.now) -> None:
        self._most = most
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[Message] = []
        self._takers: deque[Future[Message | None]] = deque()
        self._in_hand: set[Message] = set()
        self._ends = RecentEnds()
        self._is_stopping = False

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits for a loop, or for its turn in its group."""
        return bool(self._waiting)

    def room(self) -> int:
        """Return how many more messages may be received now."""
        with self._changed:
            if self._is_stopping:
                return 0
            # A message that waits for its turn in its group must not keep the others away.
            behind = sum(not message.is_ready for message in self._waiting)
            soon = len(self._takers) + behind + self._ends.count(self._clock())
            held = len(self._in_hand)
            return min(self._most, held + soon) - held - len(self._waiting)

    def add(self, messages: Sequence[Message]) -> None:
        """Let received messages wait for loops."""
        with self._changed:
            self._waiting += messages
        self.give()

    def hold(self, message: Message) -> None:
        """Note that a message is in hand that was not received here."""
        with self._changed:
            self._in_hand.add(message)

    def end(self, message: Message) -> None:
        """Note that a message was deleted or released."""
        with self._changed:
            if message in self._in_hand:
                self._in_hand.remove(message)
                self._ends.note(self._clock())
            self._changed.notify_all()

    def take(self) -> Future[Message | None]:
        """Return what will be the next message, or None after `stop`. Call `give` next."""
        taker: Future[Message | None] = Future()
        with self._changed:
            if self._is_stopping:
                taker.set_result(None)
            else:
                self._takers.append(taker)
        return taker

    def give(self) -> None:
        """Give the messages that may be processed now to the loops that wait, in turn."""
        given: list[tuple[Future[Message | None], Message]] = []
        with self._changed:
            self._waiting = [message for message in self._waiting if message.is_held]
            for message in [each for each in self._waiting if each.is_ready]:
                while self._takers and len(self._in_hand) < self._most:
                    taker = self._takers.popleft()
                    if taker.set_running_or_notify_cancel():
                        self._waiting.remove(message)
                        self._in_hand.add(message)
                        given.append((taker, message))
                        break
        for taker, message in given:
            taker.set_result(message)

    def stop(self) -> None:
        """Give no more messages, and let the loops end."""
        with self._changed:
            self._is_stopping = True
            takers, self._takers = self._takers, deque()
        for taker in takers:
            if taker.set_running_or_notify_cancel():
                taker.set_result(None)

    def release_unused(self) -> None:
        """Release the messages whose blocks have not begun, once no poll is open any more.

        An open poll would receive them again, and the dead-letter queue counts each receive.
        """
        with self._changed:
            unused = [*self._waiting, *(each for each in self._in_hand if not each.is_running)]
            self._waiting = []
        # SQS delivers the messages of a group in the order of their first receives again if the
        # last is released first.
        for message in reversed(unused):
            message.release(cause="shutdown")

    def join(self, timeout: float) -> bool:
        """Wait until no block runs. Return whether that took at most `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_hand, timeout)


class Messages:
    """Iterates over messages until the keeper stops, with `for` or `async for`.

    Args:
        take: Returns what will be the next message, or None at the end.
        check: Opens the polls that there is room for.
    """

    def __init__(
        self, take: Callable[[], Future[Message | None]], check: Callable[[], object]
    ) -> None:
        self._take = take
        self._check = check

    def __iter__(self) -> Messages:
        return self

    def __next__(self) -> Message:
        taker = self._take()
        try:
            while not concurrent.futures.wait([taker], CHECK_SECONDS).done:
                self._check()
        except BaseException:
            _decline(taker)
            raise
        message = taker.result()
        if message is None:
            raise StopIteration
        return message

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Message:
        taker = self._take()
        coming = asyncio.wrap_future(taker)
        try:
            while not coming.done():
                await asyncio.wait([coming], timeout=CHECK_SECONDS)
                self._check()
        except BaseException:
            _decline(taker)
            raise
        message = taker.result()
        if message is None:
            raise StopAsyncIteration
        return message


def _decline(taker: Future[Message | None]) -> None:
    """Want no message any more. Release it if it has been given."""
    if not taker.cancel() and (message := taker.result()) is not None:
        message.release(cause="interrupted")

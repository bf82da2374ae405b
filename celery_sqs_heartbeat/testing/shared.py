"""A simulated SQS for many threads: long polls wait, calls take time, the clock can be moved."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.requests import Answer, Request
from celery_sqs_heartbeat.testing.sqs import SimulatedSqs


class ConnectionLost(Exception):
    """The caller gets no answer, whether or not its call was done."""


class SharedSqs:
    """Passes the calls of many threads to one `SimulatedSqs`.

    Args:
        seed: As for `SimulatedSqs`.
        faults: As for `SimulatedSqs`; this class causes the network faults.

    Attributes:
        sqs: The model. Not thread-safe: while calls are made, touch it under `lock`.
    """

    def __init__(self, *, seed: int = 0, faults: Faults | None = None) -> None:
        self._offset = 0.0
        self._changed = threading.Condition()
        self._is_closed = False
        self._calls: Counter[str] = Counter()
        self.sqs = SimulatedSqs(self._now, seed=seed, faults=faults)

    def call(self, operation: str, request: Request) -> Answer:
        """Do an operation; a long poll returns when it has messages or its time has ended.

        Raises:
            SqsError: SQS refuses it, or a fault happened.
            ConnectionLost: A fault happened, or `close` ended a long poll.
        """
        with self._journey(operation), self._changed:
            if operation == "ReceiveMessage":
                return self._receive(request)
            answer = self.sqs.call(operation, request)
            if not operation.startswith(("Get", "List")):
                self._changed.notify_all()
            return answer

    def advance(self, seconds: float) -> float:
        """Move the clock forward; return how far it is ahead of real time now, in seconds.

        Raises:
            ValueError: The number is negative or not finite.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds={seconds!r} must be a number of seconds, 0 or more")
        with self._changed:
            self._offset += seconds
            self._changed.notify_all()
            return self._offset

    @property
    def ahead(self) -> float:
        """How far the clock is ahead of real time, in seconds."""
        return self._offset

    @property
    def faults(self) -> Faults:
        """The faults; set it to change them for later calls."""
        return self.sqs.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        with self._changed:
            self.sqs.faults = faults

    def calls(self) -> dict[str, int]:
        """Return how many calls of each operation were made, lost ones too."""
        with self._changed:
            return dict(self._calls)

    def close(self) -> None:
        """End the long polls."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _now(self) -> float:
        return time.monotonic() + self._offset

    @contextmanager
    def _journey(self, operation: str) -> Iterator[None]:
        with self._changed:
            self._calls[operation] += 1
            faults = self.sqs.faults
            fault = faults.of(operation)
            there, back = faults.travel_time(operation), faults.travel_time(operation)
            is_request_lost = faults.happens(fault.lost_request)
            is_answer_lost = faults.happens(fault.lost_answer)
        time.sleep(there)
        if is_request_lost:
            raise ConnectionLost
        try:
            yield
        finally:
            time.sleep(back)
            if is_answer_lost:
                raise ConnectionLost

    def _receive(self, request: Request) -> Answer:
        answer = self.sqs.call("ReceiveMessage", request)
        queue = self.sqs.queue(request["QueueUrl"])
        wait = request.get("WaitTimeSeconds")
        seconds = int(queue.options.wait if wait is None else wait)
        # On the moved clock, so a jump past the deadline ends the poll, too.
        deadline, ends_at = self._now() + seconds, time.monotonic() + seconds
        while not answer and (now := self._now()) < deadline:
            # Wait until something happens to a message, or time alone makes one visible.
            ahead = (m.visible_at for m in queue.messages.values() if m.visible_at > now)
            self._changed.wait(min([*ahead, deadline]) - now)
            if self._is_closed:
                raise ConnectionLost
            if time.monotonic() >= ends_at:
                # The machine stalled. What is visible by now may have become so after the end.
                break
            count = len(queue.messages)
            answer = self.sqs.perform("ReceiveMessage", request)
            if len(queue.messages) < count:
                # Messages moved to the dead-letter queue, where others may wait for them.
                self._changed.notify_all()
        return answer

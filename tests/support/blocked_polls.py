"""Polls of a channel without an event loop, which the test answers."""

from __future__ import annotations

import contextlib
import queue
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from celery_sqs_heartbeat.transport.poll_threads import POLL_THREAD
from tests.support.waiting import PATIENCE


@dataclass(frozen=True, eq=False)
class BlockedPoll:
    """A receive that blocks its thread until it is answered."""

    asked: dict[str, Any]
    #: Whether it was sent beside the consumer's thread.
    is_additional: bool
    _answers: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)

    def answer(self, *ids: str) -> None:
        messages = [{"MessageId": each, "ReceiptHandle": f"r-{each}", "Body": "{}"} for each in ids]
        self._answers.put({"Messages": messages} if messages else {})

    def fail(self, error: Exception) -> None:
        self._answers.put(error)

    def wait(self) -> Any:
        answer = self._answers.get(timeout=PATIENCE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def requests(self) -> int:
        return int(self.asked["MaxNumberOfMessages"])

    @property
    def waits(self) -> int:
        return int(self.asked["WaitTimeSeconds"])


class BlockedPolls:
    """All polls that a channel sends with boto3."""

    def __init__(self, client: Any, patch: pytest.MonkeyPatch) -> None:
        self._sent: queue.SimpleQueue[BlockedPoll] = queue.SimpleQueue()
        patch.setattr(client, "receive_message", self._receive)

    def next(self, count: int = 1) -> list[BlockedPoll]:
        """Return the next polls that are sent, that of the consumer's thread first."""
        polls = [self._sent.get(timeout=PATIENCE) for _ in range(count)]
        return sorted(polls, key=lambda poll: poll.is_additional)

    @property
    def has_more(self) -> bool:
        """Whether a poll was sent that `next` did not return."""
        return not self._sent.empty()

    def has_more_within(self, seconds: float) -> bool:
        """Return whether such a poll is sent within so many seconds."""
        with contextlib.suppress(queue.Empty):
            self._sent.put(self._sent.get(timeout=seconds))
        return self.has_more

    def _receive(self, **asked: Any) -> Any:
        poll = BlockedPoll(asked, threading.current_thread().name == POLL_THREAD)
        self._sent.put(poll)
        return poll.wait()

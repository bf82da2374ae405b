"""A link on the simulated clock. It delivers real frames in order, late when it is slow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.link.frames import LineReader, Message, write
from celery_sqs_heartbeat.testing import FakeClock


class Line:
    """One direction of a link.

    Args:
        deliver: Receives the messages that have arrived whole.
        delay: Returns how long a frame that is sent now takes, in seconds.

    Attributes:
        arrives_at: When the last frame that was sent arrives.
    """

    def __init__(
        self,
        clock: FakeClock,
        deliver: Callable[[list[list[Any]]], None],
        delay: Callable[[], float],
        opens_at: float = 0.0,
    ) -> None:
        self._clock = clock
        self._deliver = deliver
        self._delay = delay
        self._reader = LineReader()
        self._under_way: deque[bytes] = deque()
        self.arrives_at = opens_at

    def send(self, data: bytes) -> None:
        """Send a frame, or the part of it that was written."""
        self.arrives_at = max(self.arrives_at, self._clock() + self._delay())
        self._under_way.append(data)
        self._clock.at(self.arrives_at, self._arrive)

    def drain(self) -> list[list[Any]]:
        """Return the complete messages that are still under way. Their sender has ended."""
        data = b"".join(self._under_way)
        self._under_way.clear()
        return self._reader.feed(data)

    def lose(self) -> None:
        """Lose all frames that are under way: no one reads them any more."""
        self._under_way.clear()

    def lose_part(self, part: float) -> None:
        """Cut the last frame under way: its sender died while writing it."""
        if self._under_way:
            last = self._under_way.pop()
            self._under_way.append(last[: int(part * len(last))])

    def _arrive(self) -> None:
        if self._under_way:
            self._deliver(self._reader.feed(self._under_way.popleft()))


class LineWire:
    """The part of a `Wire` that a keeper's worker uses, over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._messages: list[Message] = []
        self.is_broken = False

    def post(self, message: Message) -> None:
        """Queue a message, which the next `flush` sends."""
        self._messages.append(message)

    def flush(self) -> bool:
        """Send all posted messages in one frame."""
        if self._messages and not self.is_broken:
            self._line.send(b"".join(map(write, self._messages)))
            self._messages.clear()
        return not self.is_broken

    def close(self) -> None:
        """Close this end."""
        self.is_broken = True

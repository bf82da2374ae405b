"""The polls of one channel that have no answer so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.poll import Poll

#: Is called with the number of messages that a poll brought: has its queue polled again.
GoOn = Callable[[int], object]


class OpenPolls:
    """Knows a channel's open polls, and has the heartbeat know those of every channel."""

    def __init__(self, *, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._polls: dict[Poll, GoOn | None] = {}

    def __bool__(self) -> bool:
        return bool(self._polls)

    def __contains__(self, poll: Poll) -> bool:
        return poll in self._polls

    def __iter__(self) -> Iterator[Poll]:
        # Another thread may change them meanwhile.
        return iter(list(self._polls))

    def add(self, poll: Poll, go_on: GoOn | None) -> None:
        """Note that a poll is asked for."""
        self._polls[poll] = go_on
        self._heartbeat.open_polls.add(poll)
        self._report(poll.url)

    def discard(self, poll: Poll) -> None:
        """Note that a poll is answered."""
        self._polls.pop(poll, None)
        self._heartbeat.open_polls.discard(poll)
        self._report(poll.url)

    def go_on_without(self, poll: Poll) -> None:
        """Have a poll's queue polled again, as if it had brought nothing."""
        if go_on := self._polls[poll]:
            go_on(0)

    def _report(self, url: str) -> None:
        ends = [poll.ends_at for poll in self._heartbeat.open_polls if poll.url == url]
        self._heartbeat.note_poll(url, max(ends, default=0.0))

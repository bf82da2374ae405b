"""The polls of one channel that have no answer yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.poll import Poll

#: Polls a poll's queue again. Its argument is the number of messages that the poll returned.
GoOn = Callable[[int], object]


class OpenPolls:
    """Records a channel's open polls, also in the heartbeat, which knows those of every channel."""

    def __init__(self, *, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._polls: dict[Poll, GoOn] = {}

    def __bool__(self) -> bool:
        return bool(self._polls)

    @property
    def count(self) -> int:
        """How many there are, with those that were given up."""
        return len(self._polls)

    def __contains__(self, poll: Poll) -> bool:
        return poll in self._polls

    def __iter__(self) -> Iterator[Poll]:
        # A copy, because another thread may change them meanwhile.
        return iter(list(self._polls))

    def waiting_for(self, queue: str) -> list[Poll]:
        """Return a queue's open polls, without those that were given up."""
        return [poll for poll in self if poll.queue == queue and not poll.is_given_up]

    def add(self, poll: Poll, go_on: GoOn = bool) -> None:
        """Note that a poll was requested."""
        self._polls[poll] = go_on
        self._heartbeat.open_polls.add(poll)
        self._report(poll.url)

    def discard(self, poll: Poll) -> None:
        """Note that a poll was answered."""
        self._polls.pop(poll, None)
        self._heartbeat.open_polls.discard(poll)
        self._report(poll.url)

    def go_on_without(self, poll: Poll) -> None:
        """Poll a poll's queue again, as if the poll had returned no messages."""
        self._polls[poll](0)

    def _report(self, url: str) -> None:
        ends = [poll.ends_at for poll in self._heartbeat.open_polls if poll.url == url]
        self._heartbeat.note_poll(url, max(ends, default=0.0))

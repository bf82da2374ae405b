"""How many messages each channel of a worker may get, as its keeper learns."""

from __future__ import annotations

from celery_sqs_heartbeat.link.deliveries import Inlet


class Credit:
    """Counts what channels got, and says what more they may get. Not thread-safe.

    The number that is said counts from the keeper's begin. It never depends on what is under way,
    so a word that is late or repeated does no harm.
    """

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self._keeper = 0
        # By channel: what it may get in all and its prefetch count, what it got, and what it got
        # from earlier keepers; what it may get as the keeper knows.
        self._rooms: dict[int, tuple[int, int]] = {}
        self._got: dict[int, int] = {}
        self._got_before: dict[int, int] = {}
        self._said: dict[int, int] = {}
        self._due: set[int] = set()

    def note(self, channel: int) -> None:
        """Note that a channel got a message."""
        self._got[channel] = self._got.get(channel, 0) + 1

    def allow(self, channel: int, free: int, prefetch_count: int) -> None:
        """Let a channel get so many more messages than it got. It may be less than before.

        This is said at once if it may get fewer than it was said, or if less than half of its
        prefetch count is unspent, or without one of what is free. Else it is said with the next
        `say`.

        Args:
            prefetch_count: How many messages it may hold at once; 0 without a limit.
        """
        got = self._got.get(channel, 0)
        room = (got + free, prefetch_count)
        if self._rooms.get(channel) != room:
            self._rooms[channel] = room
            self._due.add(channel)
            said = self._said.get(channel, 0)
            if got + free < said or said - got < (prefetch_count or free) / 2:
                self.say()

    def say(self) -> None:
        """Say what has changed."""
        for channel in tuple(self._due):
            limit, prefetch_count = self._rooms[channel]
            since = limit - self._got_before.get(channel, 0)
            if self._inlet.allow(self._keeper, channel, since, prefetch_count):
                self._due.discard(channel)
                self._said[channel] = limit

    def begin(self) -> None:
        """Begin with another keeper. What the last one has handed over must be noted by now."""
        self._keeper += 1
        self._got_before = dict(self._got)
        self._due.update(self._rooms)
        self.say()

    def end(self, channel: int) -> None:
        """Forget a channel that was closed."""
        self._rooms.pop(channel, None)
        self._due.discard(channel)

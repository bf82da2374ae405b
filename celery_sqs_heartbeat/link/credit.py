"""How many messages each channel of a worker may get, as its keeper learns."""

from __future__ import annotations

from collections import Counter

from celery_sqs_heartbeat.link.deliveries import Inlet


class Credit:
    """Counts what channels got, and says what more they may get. Not thread-safe.

    The number that is said counts from the keeper's begin. It never depends on what is under way,
    so a word that is late or repeated does no harm.
    """

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self._keeper = 0
        # By channel: what it may get in all and its prefetch count, and both as the keeper knows.
        self._rooms: dict[int, tuple[int, int]] = {}
        self._said: dict[int, tuple[int, int]] = {}
        # By channel: what it got, and what it got from earlier keepers.
        self._got = Counter[int]()
        self._got_before = Counter[int]()

    def note(self, channel: int) -> None:
        """Note that a channel got a message."""
        self._got[channel] += 1

    def allow(self, channel: int, free: int, prefetch_count: int) -> None:
        """Let a channel get so many more messages than it got. It may be less than before.

        This is said at once if it may get fewer than it was said, or if less than half of its
        prefetch count is unspent, or without one of what is free. Else it is said with the next
        `say`.

        Args:
            prefetch_count: How many messages it may hold at once; 0 without a limit.
        """
        got = self._got[channel]
        said, _ = self._said.get(channel, (0, 0))
        self._rooms[channel] = (got + free, prefetch_count)
        if got + free < said or said - got < (prefetch_count or free) / 2:
            self.say()

    def say(self) -> None:
        """Say what has changed."""
        for channel, room in self._rooms.items():
            if self._said.get(channel) != room:
                limit, prefetch_count = room
                since = limit - self._got_before[channel]
                if self._inlet.allow(self._keeper, channel, since, prefetch_count):
                    self._said[channel] = room

    def begin(self) -> None:
        """Begin with another keeper. What the last one has handed over must be noted by now."""
        self._keeper += 1
        self._got_before = Counter(self._got)
        self._said.clear()
        self.say()

    def end(self, channel: int) -> None:
        """Forget a channel that was closed."""
        self._rooms.pop(channel, None)
        self._said.pop(channel, None)

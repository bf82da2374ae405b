"""Remembers what is recent: a limited number of keys, and how fast messages end."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

#: How many keys are remembered: several minutes of a fast worker's messages, in about 15 MB.
CAPACITY = 65_536
#: A poll takes less than half a second: as many messages as end in that will be wanted soon. The
#: mean is of four such spans, because on a busy machine several messages end at once.
PACE_SECONDS = 0.5
_SPANS = 4

Key = TypeVar("Key", bound=Hashable)


class RecentKeys(Generic[Key]):
    """Remembers the newest keys, and forgets the oldest.

    For example, the messages whose task has succeeded: SQS may deliver a message again even
    after it confirmed the delete (standard queues deliver "at least once").
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def add(self, key: Key) -> None:
        """Remember a key."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._capacity:
            self._keys.popitem(last=False)

    def discard(self, key: Key) -> None:
        """Forget a key, if it is remembered."""
        self._keys.pop(key, None)


class RecentEnds:
    """Tells how fast messages end. One thread at a time may count.

    Attributes:
        is_known: Whether any message has ended yet.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._ends: deque[float] = deque()

    def note(self, now: float) -> None:
        """Note that a message ends now."""
        self.is_known = True
        self._ends.append(now)
        # Forgets the old ones: a plain consumer that receives by itself never asks for the pace.
        self.count(now)

    def count(self, now: float) -> int:
        """Return how many end in half a second, by the mean of the last two."""
        while self._ends and self._ends[0] < now - _SPANS * PACE_SECONDS:
            self._ends.popleft()
        return (len(self._ends) + _SPANS // 2) // _SPANS

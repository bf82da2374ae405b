"""Remembers a limited number of keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

#: How many keys are remembered: several minutes of a fast worker's messages, in about 15 MB.
CAPACITY = 65_536

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

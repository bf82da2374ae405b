"""Injects faults between the workers and SQS. The kinds of faults change with time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.soak.model import CHANGE, DELETE, RECEIVE, SEND, Call
from tests.support.faults import (
    Effect,
    answer_late,
    delay,
    deny,
    drip,
    fail,
    fail_entries,
    lose_answer,
    never_answer,
    reset,
    throttle,
)

OPERATIONS = (RECEIVE, CHANGE, DELETE, SEND)
#: The longest delay of a call or an answer, in seconds.
LATEST = 3.0
#: The probability that the server stalls when a worker starts, for up to `LATEST` seconds.
STILL_AT_START = 0.4


#: The faults that may happen to a call. Each is made from a number from 0 to 1.
FAULTS: dict[str, Callable[[float], Effect]] = {
    "slow": lambda number: delay(0.05 + 0.35 * number),
    "delayed": lambda number: delay(1 + (LATEST - 1) * number),
    "late answer": lambda number: answer_late(1 + (LATEST - 1) * number),
    "reset": lambda number: reset(),
    "500": lambda number: fail(),
    "503": lambda number: fail(503, "ServiceUnavailable"),
    "throttled": lambda number: throttle(),
    "lost answer": lambda number: lose_answer(),
    "refused": lambda number: deny(),
    "hidden": lambda number: fail(400, "QueueDoesNotExist"),
    "drips": lambda number: drip(0.1 + number),
    "never answered": lambda number: never_answer(is_done=number > 0.5),
    "entries refused": lambda number: fail_entries(0.5, seed=int(number * 1e6)),
}
#: The operations that a fault is limited to. boto3 gives up other calls on its own.
_ONLY_OF = {
    "refused": (CHANGE, DELETE),
    "hidden": (CHANGE, DELETE),
    "drips": (CHANGE, DELETE),
    "never answered": (RECEIVE,),
    "entries refused": (CHANGE, DELETE),
}
#: Refusals of a queue. The call after each of them is not refused: a permission that is missing for
#: long costs every lease, and no other fault could be seen.
_REFUSALS = {"refused", "hidden"}


class FaultInjector:
    """Decides what happens to a call. Thread-safe.

    Args:
        chance: Used only here, because threads race for its numbers.
        starts: Draws which workers start while the server stalls.
    """

    def __init__(self, chance: random.Random, starts: random.Random) -> None:
        self._chance = chance
        self._starts = starts
        self._still: dict[str, float] = {}
        self._rate = 0.0
        self._operations: tuple[str, ...] = ()
        self._faults: tuple[str, ...] = ()
        self._cut_off: frozenset[str] = frozenset()
        self._refused: set[tuple[str, str, str]] = set()

    def change(self) -> str:
        """Draw new kinds of faults. Return their name."""
        name, self._rate = self._chance.choice(
            [("calm", 0.0), ("calm", 0.0), ("breeze", 0.1), ("storm", 0.4), ("outage", 1.0)]
        )
        count = self._chance.randint(1, 2) if name == "outage" else len(OPERATIONS)
        self._operations = tuple(self._chance.sample(OPERATIONS, count))
        self._faults = tuple(FAULTS)
        if name == "outage":
            # All faults of an outage are of one kind, for example throttling.
            self._faults = (self._chance.choice(["reset", "500", "503", "throttled", "delayed"]),)
            return f"{name}: {', '.join(self._operations)} {self._faults[0]}"
        return name

    def clear(self) -> None:
        """Inject no more faults."""
        self._rate, self._cut_off = 0.0, frozenset()

    def begin(self, worker: str) -> float:
        """Draw how long the server stalls from a worker's first call on; 0 for not at all."""
        lasts = self._starts.uniform(1, LATEST) if self._starts.random() < STILL_AT_START else 0.0
        self._still[worker] = -lasts
        return lasts

    def still_for(self, worker: str) -> float:
        """Return for how many more seconds the server stalls for a worker's calls."""
        until = self._still.get(worker, 0.0)
        if until < 0:
            # This is its first call.
            until = self._still[worker] = time.monotonic() - until
        return max(0.0, until - time.monotonic())

    def cut_off(self, worker: str) -> None:
        """Reset every connection of a worker from now on."""
        self._cut_off |= {worker}

    def let_through(self, worker: str) -> None:
        """Let the calls of a worker through again."""
        self._cut_off -= {worker}

    def draw(self, call: Call) -> tuple[str, Effect] | None:
        """Return what happens to a call, with its name, or None for nothing."""
        worker, operation, queue = call.worker, call.operation, call.queue
        if worker in self._cut_off:
            return "cut off", reset()
        if seconds := self.still_for(worker):
            return "server stalls", delay(seconds)
        if operation not in self._operations or self._chance.random() >= self._rate:
            self._refused.discard((worker, operation, queue))
            return None
        has_refused = (worker, operation, queue) in self._refused
        faults = [
            name
            for name in self._faults
            if operation in _ONLY_OF.get(name, OPERATIONS)
            and not (has_refused and name in _REFUSALS)
        ]
        name = self._chance.choice(faults)
        if name in _REFUSALS:
            self._refused.add((worker, operation, queue))
        return name, FAULTS[name](self._chance.random())

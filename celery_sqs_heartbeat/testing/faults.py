"""Faults of SQS and of the network, drawn from a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How often each fault happens. Rates are from 0 to 1, times in seconds.

    Attributes:
        latency: Travel time of the request, and again of the answer.
        jitter: Up to so much more travel time, at random.
        lost_request: The call never arrives; the caller waits until its timeout.
        lost_answer: The call is done, but the caller waits until its timeout.
        throttled: The whole call is refused: RequestThrottled.
        denied: The whole call is refused: AccessDenied.
        failed: The whole call fails with a 500; nothing is done.
        failed_after: The whole call is done, but answered with a 500.
        entry_failed: One entry of a batch fails with InternalError, the others are done.
        entry_throttled: One entry of a batch is refused: RequestThrottled.
    """

    latency: float = 0.0
    jitter: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    throttled: float = 0.0
    denied: float = 0.0
    failed: float = 0.0
    failed_after: float = 0.0
    entry_failed: float = 0.0
    entry_throttled: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Fault:
        """Return the fault that a mapping describes.

        Raises:
            ValueError: A name is unknown, or a value is no rate or no time.
        """
        known = {each.name for each in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"fault {name!r} is not known; known are {sorted(known)}")
            is_time = name in ("latency", "jitter")
            if not isinstance(value, (int, float)) or not 0 <= value <= (3600 if is_time else 1):
                limit = "seconds, 0 to 3600" if is_time else "a rate, 0 to 1"
                raise ValueError(f"fault {name}={value!r} must be {limit}")
        return cls(**values)


@dataclass(kw_only=True)
class Faults:
    """The faults of each SQS operation.

    Args:
        seed: With the same seed, the same calls in the same order meet the same faults.
        by_operation: By name, such as "ReceiveMessage"; "*" for all that are not named. A
            batch operation that is not named has the faults of its single form.
    """

    seed: int = 0
    by_operation: Mapping[str, Fault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def of(self, operation: str) -> Fault:
        """Return the faults of an operation."""
        for name in (operation, operation.removesuffix("Batch"), "*"):
            if name in self.by_operation:
                return self.by_operation[name]
        return _NONE

    def happens(self, rate: float) -> bool:
        """Draw whether a fault with that rate happens now."""
        return rate > 0 and self.random.random() < rate

    def travel_time(self, operation: str) -> float:
        """Draw the travel time of a call of that operation, one way, in seconds."""
        fault = self.of(operation)
        return fault.latency + (self.random.random() * fault.jitter if fault.jitter else 0.0)


_NONE = Fault()

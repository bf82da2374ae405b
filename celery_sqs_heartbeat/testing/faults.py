"""Faults of SQS and of the network, drawn from a seeded generator, and their form as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.testing import model


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

    def as_plain(self) -> dict[str, Any]:
        """Return them in the form that `parse_faults` reads, without those that never happen."""
        plain = {
            operation: {name: value for name, value in asdict(fault).items() if value}
            for operation, fault in self.by_operation.items()
        }
        return {"seed": self.seed, "by_operation": plain}


_NONE = Fault()
_SHAPE = '{"seed": 0, "by_operation": {"ReceiveMessage": {"latency": 0.1}}}'
_LONGEST = {"latency": 3600, "jitter": 3600}
_KNOWN = sorted(each.name for each in fields(Fault))


class BadFaults(SqsHeartbeatError, ValueError):
    """The text does not describe faults."""


def parse_faults(text: str | bytes) -> Faults:
    """Return the faults that a JSON text describes.

    Raises:
        BadFaults: It describes none. The error gives the reason.
    """
    try:
        read = json.loads(text)
    except ValueError as error:
        raise BadFaults(f"the faults are not JSON: {error}") from None
    if isinstance(read, dict) and set(read) <= {"seed", "by_operation"}:
        seed, by_operation = read.get("seed", 0), read.get("by_operation", {})
        if isinstance(seed, int) and isinstance(by_operation, dict):
            parsed = {name: _parse_one(name, rates) for name, rates in by_operation.items()}
            return Faults(seed=seed, by_operation=parsed)
    raise BadFaults(f"the faults must look like {_SHAPE}, not {read!r}")


def _parse_one(operation: str, rates: Any) -> Fault:
    if operation != "*" and operation not in model.operations():
        known = ", ".join(model.operations())
        raise BadFaults(f"operation {operation!r} is not known; known are '*' and {known}")
    if not isinstance(rates, Mapping):
        raise BadFaults(f"{operation}: {rates!r} must map names of faults to numbers")
    for name, value in rates.items():
        if name not in _KNOWN:
            raise BadFaults(f"{operation}: fault {name!r} is not known; known are {_KNOWN}")
        most = _LONGEST.get(name, 1)
        if not isinstance(value, (int, float)) or not 0 <= value <= most:
            kind = "a rate, 0 to 1" if most == 1 else f"seconds, 0 to {most}"
            raise BadFaults(f"{operation}: fault {name}={value!r} must be {kind}")
    return Fault(**rates)


class FaultsFile:
    """A file of faults that is read again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: bytes | str | None = None

    def read(self) -> Faults | None:
        """Return the faults, or None if the file has not changed since the last call.

        Raises:
            BadFaults: It can't be read, or describes no faults. Raised once per change.
        """
        content: bytes | str
        try:
            content = self._path.read_bytes()
        except OSError as error:
            content = f"the faults can't be read: {error}"
        if content == self._seen:
            return None
        self._seen = content
        if isinstance(content, str):
            raise BadFaults(content)
        try:
            return parse_faults(content)
        except BadFaults as error:
            raise BadFaults(f"{self._path}: {error}") from None

"""The faults of a server as JSON, in a file or a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.testing.faults import Fault, Faults
from celery_sqs_heartbeat.testing.operations import OPERATIONS

_SHAPE = '{"seed": 0, "by_operation": {"ReceiveMessage": {"latency": 0.1}}}'


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
    if not isinstance(read, Mapping) or not set(read) <= {"seed", "by_operation"}:
        raise BadFaults(f"the faults must look like {_SHAPE}, not {read!r}")
    seed, by_operation = read.get("seed", 0), read.get("by_operation", {})
    if not isinstance(seed, int):
        raise BadFaults(f"seed={seed!r} must be a whole number")
    if not isinstance(by_operation, Mapping):
        raise BadFaults(f"by_operation={by_operation!r} must map operations to their faults")
    return Faults(seed=seed, by_operation=dict(map(_parse_one, by_operation.items())))


def _parse_one(item: tuple[str, Any]) -> tuple[str, Fault]:
    operation, values = item
    if operation not in OPERATIONS | {"*"}:
        known = ", ".join(sorted(OPERATIONS))
        raise BadFaults(f"operation {operation!r} is not known; known are '*' and {known}")
    if not isinstance(values, Mapping):
        raise BadFaults(f"{operation}: {values!r} must map names of faults to numbers")
    try:
        return operation, Fault.of(values)
    except ValueError as error:
        raise BadFaults(f"{operation}: {error}") from None


def as_plain(faults: Faults) -> dict[str, Any]:
    """Return the faults in the form that `parse_faults` reads, without those that never happen."""
    return {
        "seed": faults.seed,
        "by_operation": {
            operation: {name: value for name, value in asdict(fault).items() if value}
            for operation, fault in faults.by_operation.items()
        },
    }


class FaultsFile:
    """A file of faults that is read again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: bytes | None = None

    def read(self) -> Faults | None:
        """Return the faults, or None if the file has not changed since the last call.

        Raises:
            BadFaults: It can't be read, or describes no faults. Raised once per change.
        """
        try:
            content = self._path.read_bytes()
        except OSError as error:
            content = str(error).encode()
            if content == self._seen:
                return None
            self._seen = content
            raise BadFaults(f"the faults can't be read: {error}") from None
        if content == self._seen:
            return None
        self._seen = content
        try:
            return parse_faults(content)
        except ValueError as error:
            raise BadFaults(f"{self._path}: {error}") from None

"""The record of the calls that went through the proxy, for tests to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.waiting import PATIENCE


@dataclass(slots=True, kw_only=True)
class Call:
    """One SQS call as its client saw it. Times are `time.monotonic()` seconds.

    `forwarded_at` is None if a rule answered the call, `answered_at` if its connection was
    dropped or the call is still open. `access_key` is the id of the key that signed it, and is
    empty without a signature.
    """

    operation: str
    body: dict[str, Any]
    access_key: str = ""
    started_at: float = field(default_factory=time.monotonic)
    forwarded_at: float | None = None
    answered_at: float | None = None
    status: int | None = None
    answer: dict[str, Any] | None = None

    @property
    def queue_url(self) -> str:
        """The queue the call is about, empty for calls such as ListQueues."""
        return str(self.body.get("QueueUrl", ""))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The entries of a batch call, empty for other calls."""
        return list(self.body.get("Entries", ()))


class CallLog:
    """Calls in the order they arrived, shared by the proxy's threads and the test."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._changed = threading.Condition()

    def open(self, operation: str, body: dict[str, Any], access_key: str = "") -> Call:
        """Record a call on arrival, so the log also contains calls that still wait."""
        call = Call(operation=operation, body=body, access_key=access_key)
        with self._changed:
            self._calls.append(call)
        return call

    def forwarded(self, call: Call) -> None:
        """Note that the call now goes to the server."""
        with self._changed:
            call.forwarded_at = time.monotonic()

    def answered(self, call: Call, status: int, answer: dict[str, Any]) -> None:
        """Note the answer that the client is about to get."""
        with self._changed:
            call.status, call.answer, call.answered_at = status, answer, time.monotonic()
            self._changed.notify_all()

    def calls(self, operation: str | None = None) -> list[Call]:
        """Return a snapshot of all calls, or of one operation's."""
        with self._changed:
            return [replace(c) for c in self._calls if operation in (None, c.operation)]

    def wait_for(
        self,
        operation: str | None,
        *,
        count: int = 1,
        where: Callable[[Call], bool] = lambda call: True,
        timeout: float = PATIENCE,
    ) -> list[Call]:
        """Return the answered calls once there are `count` of them.

        Raises:
            TimeoutError: Fewer came within `timeout` seconds.
        """
        found: list[Call] = []

        def enough() -> bool:
            found[:] = [
                replace(c)
                for c in self._calls
                if c.answered_at is not None and operation in (None, c.operation) and where(c)
            ]
            return len(found) >= count

        with self._changed:
            if not self._changed.wait_for(enough, timeout):
                raise TimeoutError(
                    f"{len(found)} of {count} {operation or 'calls'} within {timeout} s; "
                    f"the log has {[c.operation for c in self._calls][-20:]}"
                )
        return found

    def forget(self) -> None:
        """Empty the log: a test counts from here."""
        with self._changed:
            self._calls.clear()

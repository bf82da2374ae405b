"""The record of the calls that went through the proxy, for tests to read."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.markdown import ROOT
from tests.support.waiting import PATIENCE

#: Extensions and releases are calls of one operation.
CHANGE = "ChangeMessageVisibilityBatch"
#: How many lines of a test's calls are shown.
CALL_LINES = 40


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


def confirmed(call: Call) -> list[dict[str, Any]]:
    """Return the entries of a batch call that were done."""
    done = {entry["Id"] for entry in (call.answer or {}).get("Successful", ())}
    return [entry for entry in call.entries if entry["Id"] in done]


def describe_calls(calls: Iterable[Call]) -> str:
    """Return a line for each message of each call: time, operation, message, result.

    Receives that returned nothing are left out.
    """
    calls = sorted(calls, key=lambda call: call.started_at)
    named: dict[str, str] = {}
    lines: list[str] = []
    for call in calls:
        lines += _lines(call, call.started_at - calls[0].started_at, named)
    return "\n".join(lines[-CALL_LINES:])


def rerun_command(nodeid: str) -> str:
    """Return the command that runs one test again from the repository's root."""
    python = Path(sys.executable)
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    kept = [f"THOROUGH={os.environ['THOROUGH']}"] if "THOROUGH" in os.environ else []
    return shlex.join([*kept, str(shown), "-m", "pytest", nodeid])


def _lines(call: Call, since: float, named: dict[str, str]) -> Iterator[str]:
    answer: Mapping[str, Any] = call.answer or {}
    if call.answered_at is None:
        end = "not answered"
    else:
        end = f"{call.status} after {call.answered_at - call.started_at:.3f} s"

    def line(what: str = "") -> str:
        return f"{since:9.3f} {call.operation}: {what}({end})"

    for message in answer.get("Messages", ()):
        count = message.get("Attributes", {}).get("ApproximateReceiveCount", "?")
        named[message["ReceiptHandle"]] = f"{message['MessageId'][:8]}, receive {count}"
        yield line(f"{named[message['ReceiptHandle']]} ")
    failed = {entry["Id"]: entry.get("Code", "failed") for entry in answer.get("Failed", ())}
    for entry in call.entries or [call.body]:
        if handle := entry.get("ReceiptHandle"):
            name = named.get(handle, f"handle {handle[:8]}")
            asked = f", for {entry['VisibilityTimeout']} s" if "VisibilityTimeout" in entry else ""
            code = failed.get(entry.get("Id"))
            yield line(f"{name}{asked}{f': {code}' if code else ''} ")
        elif call.operation != "ReceiveMessage":
            yield line()
    if call.operation == "ReceiveMessage" and call.status != 200:
        yield line()

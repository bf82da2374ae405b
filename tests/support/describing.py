"""Describes a failed test: its calls, and how to run it again."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.markdown import ROOT
from tests.support.recording import Call

#: How many lines of a test's calls are shown.
CALL_LINES = 40


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

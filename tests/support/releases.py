"""Extensions and releases in a proxy's record: both are calls of one operation."""

from __future__ import annotations

from typing import Any

from tests.support.recording import Call

CHANGE = "ChangeMessageVisibilityBatch"


def confirmed(call: Call) -> list[dict[str, Any]]:
    """Return the entries of a batch call that were done."""
    done = {entry["Id"] for entry in (call.answer or {}).get("Successful", ())}
    return [entry for entry in call.entries if entry["Id"] in done]

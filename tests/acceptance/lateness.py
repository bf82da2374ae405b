"""Extensions that were late although no process that makes or carries them stalled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.recording import CHANGE, Call
from tests.support.stalls import COUNTS, Stall, stood_still


def late_extensions(
    calls: Iterable[Call], visibility_timeout: int, stalls: Sequence[Stall]
) -> list[float]:
    """Return by how many seconds leases had run out when they were extended.

    Args:
        calls: The proxy's record of one queue.
        visibility_timeout: The queue's own, for receives that request none.
        stalls: Of the worker and of the proxy. What they take from a lease is forgiven, and
            what the server took for its answers to extensions.
    """
    calls = list(calls)
    stalls = [*stalls, *server_stalls(calls)]
    leases: dict[str, tuple[float, float]] = {}
    late: list[float] = []
    for call in calls:
        answer: Mapping[str, Sequence[Mapping[str, Any]]] = call.answer or {}
        if call.forwarded_at is None:
            continue
        if call.operation == "ReceiveMessage" and call.answered_at is not None:
            timeout = call.body.get("VisibilityTimeout", visibility_timeout)
            for message in answer.get("Messages", ()):
                handle = message["ReceiptHandle"]
                leases[handle] = (call.answered_at, call.answered_at + timeout)
        if call.operation == CHANGE:
            done = {entry["Id"] for entry in answer.get("Successful", ())}
            for entry in call.entries:
                if entry["VisibilityTimeout"] and entry["Id"] in done:
                    # Its receive may be older than the record.
                    unknown = (call.forwarded_at, math.inf)
                    began, expires = leases.get(entry["ReceiptHandle"], unknown)
                    stood = stood_still(stalls, began, call.forwarded_at)
                    if call.forwarded_at > expires + stood:
                        late.append(call.forwarded_at - expires)
                    expires = call.forwarded_at + entry["VisibilityTimeout"]
                    leases[entry["ReceiptHandle"]] = (call.forwarded_at, expires)
    return late


def server_stalls(calls: Iterable[Call]) -> list[Stall]:
    """Return when the server stalled: it had extensions to answer, and did not."""
    return [
        Stall(call.answered_at, call.answered_at - call.forwarded_at)
        for call in calls
        if call.operation == CHANGE and call.answered_at is not None
        if call.forwarded_at is not None and call.answered_at - call.forwarded_at > COUNTS
    ]

"""The admin endpoint of the server: faults, counts of calls, the clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing.faultsfile import as_plain, parse_faults
from celery_sqs_heartbeat.testing.protocol import Reply
from celery_sqs_heartbeat.testing.shared import SharedSqs


def answer_admin(shared: SharedSqs, method: str, path: str, content: bytes) -> Reply:
    """Answer a request that is no SQS call. A bad request changes nothing and gets the reason."""
    try:
        answer = _do(shared, f"{method} {path}", content)
    except ValueError as error:
        return Reply(400, {"message": str(error)})
    if answer is None:
        known = "GET /_faults, PUT /_faults, GET /_calls, POST /_advance"
        return Reply(404, {"message": f"{method} {path} is unknown: use one of {known}"})
    return Reply(200, answer)


def _do(shared: SharedSqs, request: str, content: bytes) -> Mapping[str, Any] | None:
    match request:
        case "GET /_faults":
            return as_plain(shared.faults)
        case "PUT /_faults":
            shared.faults = parse_faults(content)
            return as_plain(shared.faults)
        case "GET /_calls":
            return shared.calls()
        case "POST /_advance":
            return {"ahead": shared.advance(_read_seconds(content))}
    return None


def _read_seconds(content: bytes) -> float:
    try:
        return float(json.loads(content)["seconds"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f'the body must look like {{"seconds": 60}}, not {content!r}') from None

"""Reads the name and the id of a task in the message of a Celery producer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any


def task_of(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the task's name and id; None for each that can't be read.

    kombu's body is a JSON object, encoded with Base64 unless the producer has turned that off
    (kombu/transport/SQS.py, `_put`). Celery's protocol 2, the default since 4.0, has both in its
    headers.
    """
    try:
        payload = json.loads(_decoded(message["Body"]))
        # Without properties it is not kombu's, and kombu ignores its headers.
        headers = payload["headers"] if "properties" in payload else {}
        task, task_id = headers.get("task"), headers.get("id")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, None
    return (
        task if isinstance(task, str) else None,
        task_id if isinstance(task_id, str) else None,
    )


def _decoded(body: str) -> str | bytes:
    # A JSON object is no Base64.
    return body if body[:1] == "{" else base64.b64decode(body)

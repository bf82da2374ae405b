"""JSON objects in strings, as SQS has its policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def read_map(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object that a text is, or None when it is none."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None

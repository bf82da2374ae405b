"""JSON objects in strings, the form of SQS's policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def read_map(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object in a text, or None if it is not one."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None

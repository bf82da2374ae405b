"""What a received message says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def receive_count_of(message: Mapping[str, Any]) -> int:
    """Return how often SQS had delivered the message by then; 1 where it does not say."""
    try:
        return int(message["Attributes"]["ApproximateReceiveCount"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def time_of(message: Mapping[str, Any], attribute: str) -> float | None:
    """Return a timestamp that SQS gave with the message, in Unix seconds; None without it."""
    try:
        return int(message["Attributes"][attribute]) / 1000
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def queue_name(queue_url: str) -> str:
    """Return a queue's name, which its URL ends with."""
    return queue_url.rstrip("/").rpartition("/")[2]

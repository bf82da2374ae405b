"""Checks a number of seconds that a task passes."""

from __future__ import annotations

import math
from typing import Any

from celery_sqs_heartbeat.common.numeric import is_number


def check_seconds(name: str, value: Any) -> None:
    """Check a number of seconds.

    Args:
        name: The name of the argument or attribute.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or not finite.
    """
    if not is_number(value):
        raise TypeError(f"{name} is {value!r}: give it as seconds")
    if value < 0 or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}: give it as seconds, 0 or more")

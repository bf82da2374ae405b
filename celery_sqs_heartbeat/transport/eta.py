"""Reads when a message's task is due."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from celery.utils.time import maybe_iso8601, maybe_make_aware


def seconds_until_eta(headers: Mapping[str, Any], now: datetime | None = None) -> float | None:
    """Return the seconds until the ETA in a message's headers.

    None if there is no ETA, or none that can be read, which Celery logs. Only messages of
    Celery's protocol 2, the default since 4.0, have the ETA in their headers.

    Args:
        now: The present time, if not the clock's.
    """
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        moment = maybe_make_aware(maybe_iso8601(eta))
        left = moment - (now or datetime.now(timezone.utc))
    except (ValueError, TypeError, OverflowError):
        return None
    return float(left.total_seconds())

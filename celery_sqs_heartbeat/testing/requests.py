"""Requests and answers: plain data, as in a boto3 client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing import errors

Answer = dict[str, Any]
Request = Mapping[str, Any]


def within(request: Request, name: str, low: int, high: int) -> int | None:
    """Return a number that SQS accepts, or None if the request has none.

    Raises:
        SqsError: It is out of range (SQS API reference, of the parameter).
    """
    value = request.get(name)
    if value is not None and not low <= int(value) <= high:
        raise errors.out_of_range(name, value, f"Must be between {low} and {high}, if provided")
    return None if value is None else int(value)

"""The clients that upload and copy segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Timeout of an upload, in seconds. It must not delay the worker's end for long.
_TIMEOUT = 5.0


def new_s3_client(new_session: Callable[[], Any] | None = None, **config: Any) -> Any:
    """Return a client with boto3's own configuration. The broker may be in another account.

    Args:
        new_session: Makes the boto3 session; None for boto3's default.
        config: Arguments of botocore's `Config`.
    """
    import boto3
    from botocore.config import Config

    session = new_session() if new_session is not None else boto3.Session()
    return session.client("s3", config=Config(**config))


def new_shipping_client(new_session: Callable[[], Any] | None = None) -> Any:
    """Return a client that gives up soon, because the shipper tries again itself."""
    from celery_sqs_heartbeat.sqs.sending import guard

    client = new_s3_client(
        new_session,
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        retries={"total_max_attempts": 1},
    )
    guard(client)
    return client

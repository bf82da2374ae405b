"""The clients that segments are shipped and fetched by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Of a call that ships, in seconds: it must not outlast the worker's end for long.
_TIMEOUT = 5.0


def new_s3_client(new_session: Callable[[], Any] | None = None, **config: Any) -> Any:
    """Return a client of boto3's own configuration: the broker's may be another account.

    Args:
        new_session: Makes its boto3 session, where that is not boto3's own.
        config: What botocore's `Config` is to say.
    """
    import boto3
    from botocore.config import Config

    session = new_session() if new_session is not None else boto3.Session()
    return session.client("s3", config=Config(**config))


def new_shipping_client(new_session: Callable[[], Any] | None = None) -> Any:
    """Return a client that gives up soon: the shipper tries again itself."""
    return new_s3_client(
        new_session,
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        retries={"total_max_attempts": 1},
    )

"""The clients that segments are shipped and fetched by."""

from __future__ import annotations

from typing import Any

#: Of a call that ships, in seconds: it must not outlast the worker's end for long.
_TIMEOUT = 5.0


def new_s3_client(**config: Any) -> Any:
    """Return a client of boto3's own configuration: the broker's may be another account.

    Args:
        config: What botocore's `Config` is to say.
    """
    import boto3
    from botocore.config import Config

    return boto3.Session().client("s3", config=Config(**config))


def new_shipping_client() -> Any:
    """Return a client that gives up soon: the shipper tries again itself."""
    return new_s3_client(
        connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT, retries={"total_max_attempts": 1}
    )

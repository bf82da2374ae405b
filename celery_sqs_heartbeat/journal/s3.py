"""Where segments are shipped to, and by what."""

from __future__ import annotations

from typing import Any

#: Of a call, in seconds: it must not outlast the worker's end for long.
_TIMEOUT = 5.0


def new_s3_client() -> Any:
    """Return a client of boto3's own configuration: the broker's may be another account."""
    import boto3
    from botocore.config import Config

    return boto3.Session().client(
        "s3",
        config=Config(
            connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT, retries={"total_max_attempts": 1}
        ),
    )

"""boto3 clients for servers on loopback."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config


def sqs_client(url: str, **config: Any) -> Any:
    """Return a boto3 SQS client that talks to `url` with dummy keys.

    Args:
        url: Endpoint of a server, or of a proxy in front of it.
        config: Settings of `botocore.config.Config`, for example `retries`.
    """
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        # A web proxy set in the environment must not see loopback traffic.
        config=Config(**{"proxies": {}, **config}),
    )

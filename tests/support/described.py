"""botocore's descriptions of AWS's services, read once per process.

Each boto3 session reads and parses them again, which takes a tenth of a second of CPU. kombu makes
a session for each channel, and the tests make a thousand.
"""

from __future__ import annotations

import functools

import boto3
import botocore.session


def share_descriptions() -> None:
    """Make all later sessions of this process share the descriptions that they read."""
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)


def read_sqs() -> None:
    """Read what clients of SQS and STS need, for later sessions."""
    for service in ("sqs", "sts"):
        boto3.Session().client(
            service,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

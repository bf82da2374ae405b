"""What botocore knows of AWS's services, read once in a process.

Each session of boto3 reads and parses it anew: a tenth of a second of CPU. kombu makes one for each
channel, and the tests make a thousand.
"""

from __future__ import annotations

import functools

import boto3
import botocore.session


def share_descriptions() -> None:
    """Have all later sessions of this process share what they read."""
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)


def read_sqs() -> None:
    """Read what a client of SQS needs, and of STS, for those to come."""
    for service in ("sqs", "sts"):
        boto3.Session().client(
            service,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

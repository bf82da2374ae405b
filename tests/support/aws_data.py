"""One reading of botocore's data for all sessions of a process.

Each session parses megabytes of JSON anew, a tenth of a second of CPU, and the tests make thousands
of sessions: every worker has several.
"""

from __future__ import annotations

import functools

import boto3
import botocore.session
from botocore.loaders import create_loader


def share() -> None:
    """Have all sessions of this process, and of what is forked from it, share their data."""
    botocore.session.create_loader = functools.cache(create_loader)


def load() -> None:
    """Read what a client of SQS needs."""
    session = boto3.session.Session("testing", "testing", region_name="us-east-1")
    session.client("sqs").close()

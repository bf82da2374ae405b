"""Environment variables: of the processes that tests start, and of `make test-deep`."""

from __future__ import annotations

import os

#: Keeps a process away from real accounts and web proxies, and keeps its log unbuffered.
SAFE_ENV = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PYTHONUNBUFFERED": "1",
}
#: Set by `make test-deep`.
THOROUGH = "THOROUGH" in os.environ


def scaled(usual: int, thorough: int) -> int:
    """Return how many examples to try in this run."""
    return thorough if THOROUGH else usual

"""Which versions run together."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

_PACKAGES = ("celery-sqs-heartbeat", "celery", "kombu", "boto3")


def running_versions() -> Mapping[str, str]:
    """Return Python's version and those of the packages that count, by name."""
    return {"python": python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # Run from a checkout, say.
        return "unknown"

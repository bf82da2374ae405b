"""Which versions are installed, and which are tested together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

_PACKAGES = ("celery-sqs-heartbeat", "celery", "kombu", "boto3")
#: The Celery and kombu versions that the tests run on.
OLDEST_TESTED = (5, 5)
NEWEST_TESTED = (5, 7)
#: The same for users to read.
TESTED = f"{'.'.join(map(str, OLDEST_TESTED))} to {'.'.join(map(str, NEWEST_TESTED))}"
#: The first and the last version of each package on which its private names were verified.
VERIFIED: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "celery": (OLDEST_TESTED, NEWEST_TESTED),
    "kombu": (OLDEST_TESTED, NEWEST_TESTED),
    "billiard": ((4, 3), (4, 3)),
    "celery_batches": ((0, 11), (0, 11)),
    "pyspark": ((4, 3), (4, 3)),
    "python": ((3, 10), (3, 13)),
}


def running_versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages in `_PACKAGES`, by name."""
    return {"python": python_version(), **{name: version_of(name) for name in _PACKAGES}}


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        # For example, run from a checkout.
        return "unknown"


def at_least(package: str, wanted: tuple[int, int]) -> bool:
    """Return whether a package has at least the wanted version. An unknown version passes."""
    numbers = _numbers(version_of(package))
    return not numbers or numbers >= wanted


def distribution_of(package: str) -> str:
    """Return the distribution of a package: "python", or a name in `VERIFIED`."""
    return "python" if package in sys.stdlib_module_names else package


def is_verified(distribution: str) -> bool:
    """Return whether its private names were verified on the installed version."""
    running = python_version() if distribution == "python" else version_of(distribution)
    oldest, newest = VERIFIED[distribution]
    return oldest <= _numbers(running) <= newest


def is_tested(version: str) -> bool:
    """Return whether the tests run on that version of Celery or kombu."""
    return OLDEST_TESTED <= _numbers(version) <= NEWEST_TESTED


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())

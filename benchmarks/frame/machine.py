"""Describes the machine and the versions that a run measured."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("celery", "kombu", "boto3", "pyspark")


def describe() -> str:
    """Return one line: the date, the machine and the versions."""
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"Python {platform.python_version()}"
    return f"{when}, {_processor()}, {cores} cores, {', '.join([python, *_versions()])}"


def _processor() -> str:
    """Return the processor's name, which `platform` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found

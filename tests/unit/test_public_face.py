"""The public names of the package, and the modules that importing it must not load."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

import pytest

import celery_sqs_heartbeat
from celery_sqs_heartbeat import leases

HEAVY = {"boto3", "botocore", "celery", "kombu", "django", "flask", "pyspark"}
CORE = [
    "celery_sqs_heartbeat",
    *(f"celery_sqs_heartbeat.leases.{each.name}" for each in iter_modules(leases.__path__)),
    "celery_sqs_heartbeat.current.sharing",
    "celery_sqs_heartbeat.settings",
    "celery_sqs_heartbeat.keeper.thread_keeper",
]


def test_the_core_is_imported_without_anything_heavy() -> None:
    code = f"import sys, {', '.join(CORE)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert HEAVY & set(loaded) == set()


def test_every_public_name_is_sorted_documented_and_found() -> None:
    names = celery_sqs_heartbeat.__all__
    assert names == sorted(names)
    for name in names:
        assert getattr(celery_sqs_heartbeat, name).__doc__
    assert dir(celery_sqs_heartbeat) == names
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = celery_sqs_heartbeat.nothing

"""The public names of the package, and the modules that importing it must not load."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

import pytest

import celery_sqs_heartbeat
from celery_sqs_heartbeat import leases

OURS = "celery_sqs_heartbeat"
SQS, CELERY = {"boto3", "botocore"}, {"celery", "kombu"}
OPTIONAL = {"django", "flask", "pyspark", "prometheus_client", "opentelemetry", "rich", "pytest"}
CORE = [
    "celery_sqs_heartbeat",
    *(f"celery_sqs_heartbeat.leases.{each.name}" for each in iter_modules(leases.__path__)),
    "celery_sqs_heartbeat.current.sharing",
    "celery_sqs_heartbeat.settings",
    "celery_sqs_heartbeat.keeper.thread_keeper",
    "celery_sqs_heartbeat.observe.status",
    "celery_sqs_heartbeat.observe.measuring",
]


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        pytest.param(CORE, {*SQS, *CELERY, *OPTIONAL, "click"}, id="the core"),
        pytest.param([f"{OURS}.cli"], {*SQS, *CELERY, *OPTIONAL}, id="every celery command"),
        pytest.param(
            [f"{OURS}.worker.heartbeat"],
            # Celery itself loads Django, where it is installed.
            {*OPTIONAL, f"{OURS}.keeper", f"{OURS}.journal"} - {"django"},
            id="a worker",
        ),
        pytest.param([f"{OURS}.keeper"], {*CELERY, f"{OURS}.observe"}, id="a keeper"),
        pytest.param([f"{OURS}.observe.metrics"], {"opentelemetry"}, id="metrics"),
        pytest.param([f"{OURS}.observe.otel"], {"prometheus_client"}, id="traces"),
        pytest.param([f"{OURS}.testing.server"], {*CELERY, *OPTIONAL}, id="the simulated SQS"),
    ],
)
def test_importing_a_part_loads_nothing_that_it_does_not_need(
    modules: list[str], forbidden: set[str]
) -> None:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {*loaded, *(name.partition(".")[0] for name in loaded)} & forbidden == set()


def test_every_public_name_is_sorted_documented_and_found() -> None:
    names = celery_sqs_heartbeat.__all__
    assert names == sorted(names)
    for name in names:
        assert getattr(celery_sqs_heartbeat, name).__doc__
    assert dir(celery_sqs_heartbeat) == names
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = celery_sqs_heartbeat.nothing

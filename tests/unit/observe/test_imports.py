"""Imports: no lower layer imports `observe`, and optional packages stay optional."""

from __future__ import annotations

import subprocess
import sys

import pytest

OBSERVE = "celery_sqs_heartbeat.observe"
HEAVY = {"boto3", "celery", "kombu", "prometheus_client", "opentelemetry", "rich", "click"}


def loaded_with(module: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after importing one."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_keeper_knows_nothing_of_its_observers() -> None:
    loaded = loaded_with("celery_sqs_heartbeat.keeper.thread_keeper")
    assert not any(name.startswith(OBSERVE) for name in loaded)


@pytest.mark.parametrize("module", ["status", "measuring"])
def test_the_status_page_needs_no_other_package(module: str) -> None:
    loaded = {name.partition(".")[0] for name in loaded_with(f"{OBSERVE}.{module}")}
    assert not HEAVY & loaded


def test_each_library_is_loaded_by_only_one_module() -> None:
    metrics, otel = loaded_with(f"{OBSERVE}.metrics"), loaded_with(f"{OBSERVE}.otel")
    assert "prometheus_client" in metrics - otel
    assert "opentelemetry" in otel - metrics


def test_every_celery_command_imports_little() -> None:
    loaded = {name.partition(".")[0] for name in loaded_with("celery_sqs_heartbeat.cli")}
    assert not (HEAVY - {"click"}) & loaded

"""The Flask extension, in an application factory and with the user's own Celery app."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, shared_task
from flask import Flask, current_app

from celery_sqs_heartbeat import ConfigurationError
from celery_sqs_heartbeat.contrib.flask import SqsHeartbeat, celery_init_app
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep
from tests.support.insides import restore_apps
from tests.support.markdown import blocks
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV

CONFIG = {
    "broker_url": "sqs://testing:testing@127.0.0.1:1",
    "task_acks_late": True,
    "task_always_eager": True,
    "task_store_eager_result": False,
}


@pytest.fixture(autouse=True)
def _restored_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's current and default app, and the shared tasks, are those of the process."""
    restore_apps(monkeypatch)


def flask_app(**config: Any) -> Flask:
    app = Flask("shop")
    app.config.from_mapping(**config)
    return app


def is_installed(app: Celery) -> bool:
    return SqsHeartbeatStep in app.steps["worker"]


def test_an_app_factory_gets_a_celery_app_with_the_heartbeat() -> None:
    extension = SqsHeartbeat()
    app = flask_app(CELERY=CONFIG)
    extension.init_app(app)
    celery = app.extensions["celery"]
    assert is_installed(celery)
    assert celery.main == "shop"
    assert celery.conf.task_acks_late is True


def test_tasks_run_in_the_apps_context() -> None:
    app = flask_app(CELERY=CONFIG, PRICE=3)
    celery = celery_init_app(app)

    @celery.task
    def price(times: int) -> int:
        return int(current_app.config["PRICE"]) * times

    @shared_task
    def shared_price() -> int:
        return int(current_app.config["PRICE"])

    assert price.delay(2).get() == 6
    assert shared_price.delay().get() == 3
    with pytest.raises(RuntimeError, match="application context"):
        _ = current_app.name


def test_a_celery_app_that_is_there_is_kept() -> None:
    app = flask_app()
    own = Celery("own", set_as_current=False)
    app.extensions["celery"] = own
    SqsHeartbeat(app)
    SqsHeartbeat(app)
    assert app.extensions["celery"] is own
    assert is_installed(own)


@pytest.mark.parametrize(("config", "kind"), [({}, "NoneType"), ({"CELERY": "sqs://k:s@"}, "str")])
def test_a_missing_configuration_is_an_error(config: dict[str, Any], kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"is of type {kind}: must be a dict") as told:
        celery_init_app(flask_app(**config))
    assert "k:s" not in str(told.value)


def test_the_document_is_true_and_its_worker_has_the_option(tmp_path: Path) -> None:
    factory, make_celery = blocks("docs/flask.md", "python")
    (tmp_path / "shop.py").write_text(factory)
    (tmp_path / "make_celery.py").write_text(make_celery)
    env = {**os.environ, **SAFE_ENV, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def celery(*args: str) -> subprocess.CompletedProcess[str]:
        return run_forked(
            [sys.executable, "-m", "celery", "-A", "make_celery", *args],
            env={**env, "COLUMNS": "200"},
            cwd=tmp_path,
        )

    assert "--heartbeat-sqs" in celery("worker", "--help").stdout
    told = celery("-b", "sqs://k:s@127.0.0.1:1", "sqs-heartbeat", "doctor").stdout
    assert "install(app) was not called" not in told
    assert "task_acks_late" not in told

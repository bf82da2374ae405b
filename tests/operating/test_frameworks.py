"""Django and Flask: the app, its checks, and what the pages show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, shared_task
from flask import Flask, current_app

from celery_sqs_heartbeat import ConfigurationError
from celery_sqs_heartbeat.contrib.flask import SqsHeartbeat, celery_init_app
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.worker.step import SqsHeartbeatStep
from tests.support.insides import restore_apps
from tests.support.markdown import blocks
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV

#: Runs commands of `manage.py`, each in its own folder and process. Django is imported once.
RUNNER = """
import json, os, sys
from pathlib import Path
import celery
from django.core.management import execute_from_command_line

statuses = []
for row in json.loads(Path(sys.argv[1]).read_text()):
    pid = os.fork()
    if pid == 0:
        os.chdir(row["folder"])
        sys.path.insert(0, row["folder"])
        os.environ.update(row["env"])
        out = os.open("out", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        execute_from_command_line(["manage.py", *row["args"]])
        sys.exit()
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(statuses))
"""
CELERY = """
from celery import Celery
from celery_sqs_heartbeat import install

app = install(Celery("proj"))
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
SETTINGS = """
import json, os
SECRET_KEY = "x"
INSTALLED_APPS = ["celery_sqs_heartbeat.contrib.django", "shop"]
for name, value in json.loads(os.environ["PROJ_CONF"]).items():
    globals()[name] = value
"""
TASKS = """
from celery import shared_task

@shared_task
def sell():
    ...
"""
BAD_TASK = '@shared_task(sqs_heartbeat={"max_lease": "x"})'
OTHER_APP = """
from django.apps import AppConfig

class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        from celery import Celery

        self.other = Celery("other")
"""
PROJECT = {
    "proj/__init__.py": "from proj.celery import app\n",
    "proj/celery.py": CELERY,
    "proj/settings.py": SETTINGS,
    "shop/__init__.py": "",
    "shop/tasks.py": TASKS,
}
SOUND = {
    "CELERY_BROKER_URL": "sqs://testing:testing@127.0.0.1:1",
    "CELERY_BROKER_TRANSPORT_OPTIONS": {"is_secure": False, "region": "us-east-1"},
    "CELERY_TASK_ACKS_LATE": True,
    "CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT": False,
    "CELERY_SQS_HEARTBEAT_ENABLED": True,
}
NO_ISSUES = "System check identified no issues"
#: As `runserver` checks.
IN_A_THREAD = (
    "import threading; from django.core.management import call_command; "
    "thread = threading.Thread(target=call_command, args=('check',)); thread.start(); thread.join()"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A command, and what differs from a sound project."""

    args: Sequence[str] = ("check",)
    conf: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


Run = Callable[..., list[tuple[int, str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the commands of rows; return their exit codes and output."""

    def run(*rows: Row) -> list[tuple[int, str]]:
        folders = [tmp_path / str(number) for number in range(len(rows))]
        given = []
        for row, folder in zip(rows, folders, strict=True):
            for name, text in {**PROJECT, **row.files}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            env = {"PROJ_CONF": json.dumps({**SOUND, **row.conf})}
            given.append({"folder": str(folder), "args": list(row.args), "env": env})
        (tmp_path / "runner.py").write_text(RUNNER)
        (tmp_path / "rows.json").write_text(json.dumps(given))
        project = {"DJANGO_SETTINGS_MODULE": "proj.settings", "PYTHONPATH": str(ROOT)}
        ended = run_forked(
            [sys.executable, "runner.py", "rows.json"],
            env={**os.environ, **SAFE_ENV, "COLUMNS": "100", **project},
            cwd=tmp_path,
        )
        assert ended.returncode == 0, ended.stderr
        outs = [(folder / "out").read_text() for folder in folders]
        return list(zip(json.loads(ended.stdout), outs, strict=True))

    return run


NO_APP, APP = {"proj/__init__.py": ""}, {"HEARTBEAT_SQS_APP": "proj.celery:app"}
#: Settings, files, the exit code and a part of what is printed.
FAULTS: tuple[tuple[dict[str, Any], dict[str, str], int, str], ...] = (
    ({}, {}, 0, NO_ISSUES),
    (
        {"CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT": -1},
        {},
        1,
        "CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1: must be 1 to 43200",
    ),
    (
        {"CELERY_SQS_HEARTBEAT_TRESHOLD": 5, "SQS_HEARTBEAT_ENABLED": True},
        {},
        1,
        "SQS_HEARTBEAT_ENABLED: there is no such setting; did you mean CELERY_SQS_HEARTBEAT_ENABL",
    ),
    (
        {},
        {"shop/tasks.py": TASKS.replace("@shared_task", BAD_TASK)},
        1,
        "task 'shop.tasks.sell': sqs_heartbeat['max_lease']='x': must be",
    ),
    (
        {},
        {"proj/celery.py": CELERY.replace('install(Celery("proj"))', 'Celery("proj")')},
        1,
        "E003) install(app) was not called",
    ),
    ({"CELERY_TASK_ACKS_LATE": False}, {}, 0, "W101) CELERY_TASK_ACKS_LATE=False: "),
    ({"CELERY_BROKER_URL": "memory://"}, {}, 0, "W002) the broker is not SQS: memory"),
    ({}, NO_APP, 0, "W007) no Celery app was found"),
    (APP, NO_APP, 0, NO_ISSUES),
    ({"HEARTBEAT_SQS_APP": "proj.celry:app"}, {}, 1, "'proj.celry:app' (ModuleNotFoundError: "),
    ({"HEARTBEAT_SQS_APP": 5}, {}, 1, "5 (it must be a string): the setting names no"),
    ({}, {"shop/apps.py": OTHER_APP}, 1, "E015) HEARTBEAT_SQS_APP=None ('proj' was current at"),
)


def test_the_checks_of_a_project_find_each_fault_of_its_settings(run: Run) -> None:
    rows = [Row(conf=conf, files=files) for conf, files, _, _ in FAULTS]
    *checked, in_a_thread = run(*rows, Row(args=["shell", "-c", IN_A_THREAD]))
    for (_, _, status, said), (ended, shown) in zip(FAULTS, checked, strict=True):
        assert (ended, said in " ".join(shown.split())) == (status, True), shown
        assert "Traceback" not in shown
    assert NO_ISSUES in in_a_thread[1]


def test_the_doctor_is_a_command_of_the_project(run: Run) -> None:
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="celery")
        broker = {"CELERY_BROKER_URL": server.broker_url}
        options = ([], ["--strict"], ["--json", "-Q", "celery", "-P", "solo"])
        rows = [Row(args=["sqs_heartbeat_doctor", *each], conf=broker) for each in options]
        wrong = {"CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT": -1}
        plain, strict, as_json, refused = run(*rows, Row(args=["sqs_heartbeat_doctor"], conf=wrong))
    assert plain[0] == 0, plain[1]
    assert "WARNING  queue celery: the queue has no redrive policy" in plain[1]
    assert (strict[0], refused[0]) == (1, 2)
    assert "CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1" in refused[1]
    ids = {each["id"] for each in json.loads(as_json[1])}
    assert {"SQSHB-W204", "SQSHB-P301", "SQSHB-P008"} <= ids


def test_the_document_is_true(run: Run) -> None:
    settings, celery = blocks("docs/django.md", "python")
    begin = 'SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\n'
    files = {"proj/celery.py": celery, "proj/settings.py": begin + settings}
    ((status, shown),) = run(Row(files=files))
    assert status == 0, shown
    assert NO_ISSUES in shown


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


DJANGO, FLASK = "docs/django.md", "docs/flask.md"

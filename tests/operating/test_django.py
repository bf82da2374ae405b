"""The Django app in a small project, as `manage.py` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.markdown import blocks
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV

Manage = Callable[..., "subprocess.CompletedProcess[str]"]

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
CELERY = """
import os
from celery import Celery
from celery_sqs_heartbeat import install

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
app = install(Celery("proj"))
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
SETTINGS = """
import json, os
SECRET_KEY = "x"
INSTALLED_APPS = ["celery_sqs_heartbeat.contrib.django", "shop"]
for name, value in json.loads(os.environ.get("PROJ_CONF", "{}")).items():
    globals()[name] = value
"""
TASKS = """
import json, os
from celery import shared_task

@shared_task(sqs_heartbeat=json.loads(os.environ.get("PROJ_TASK", "{}")))
def sell():
    ...
"""
SOUND = {
    "CELERY_BROKER_URL": "sqs://testing:testing@127.0.0.1:1",
    "CELERY_BROKER_TRANSPORT_OPTIONS": {"is_secure": False, "region": "us-east-1"},
    "CELERY_TASK_ACKS_LATE": True,
    "CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT": False,
    "CELERY_SQS_HEARTBEAT_ENABLED": True,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "manage.py": MANAGE,
        "proj/__init__.py": "from proj.celery import app\n",
        "proj/celery.py": CELERY,
        "proj/settings.py": SETTINGS,
        "shop/__init__.py": "",
        "shop/tasks.py": TASKS,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def manage(project: Path) -> Manage:
    def run(*args: str, env: dict[str, str] | None = None, **conf: Any) -> Any:
        return run_forked(
            [sys.executable, "manage.py", *args],
            env={
                **os.environ,
                **SAFE_ENV,
                "COLUMNS": "100",
                "PYTHONPATH": str(ROOT),
                "PROJ_CONF": json.dumps({**SOUND, **conf}),
                **(env or {}),
            },
            cwd=project,
        )

    return run


def test_a_sound_project_passes_its_checks_without_sqs(manage: Manage) -> None:
    ended = manage("check")
    assert ended.returncode == 0, ended.stderr
    assert "System check identified no issues" in ended.stdout


def test_every_fault_of_the_settings_is_an_error(manage: Manage) -> None:
    ended = manage(
        "check", CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1, CELERY_SQS_HEARTBEAT_TRESHOLD=5
    )
    assert ended.returncode == 1
    assert ended.stderr.count("(celery_sqs_heartbeat.E001)") == 2
    assert "CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1: must be 1 to 43200" in ended.stderr
    assert "CELERY_SQS_HEARTBEAT_TRESHOLD: there is no such setting" in ended.stderr
    assert "did you mean CELERY_SQS_HEARTBEAT_THRESHOLD?" in ended.stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SQS_HEARTBEAT_ENABLED", "CELERY_SQS_HEARTBEAT_ENABLED"),
        ("CELERY_SQS_HEARTBEET_THRESHOLD", "CELERY_SQS_HEARTBEAT_THRESHOLD"),
        ("CELERY_HEARTBEAT_SQS_ENABLED", "CELERY_SQS_HEARTBEAT_ENABLED"),
    ],
)
def test_a_misspelt_prefix_is_an_error(manage: Manage, name: str, meant: str) -> None:
    ended = manage("check", **{name: True})
    assert ended.returncode == 1
    assert f"{name}: there is no such setting; did you mean {meant}?" in ended.stderr


@pytest.mark.parametrize(("command", "status"), [("sqs_heartbeat_doctor", 2), ("check", 1)])
def test_the_faults_of_tasks_are_found(manage: Manage, command: str, status: int) -> None:
    ended = manage(command, env={"PROJ_TASK": '{"max_lease": "long"}'})
    assert ended.returncode == status
    shown = " ".join((ended.stdout + ended.stderr).split())
    assert "task 'shop.tasks.sell': sqs_heartbeat['max_lease']='long': must be" in shown


def test_a_misspelt_option_of_a_task_is_an_error(manage: Manage, project: Path) -> None:
    tasks = project / "shop" / "tasks.py"
    tasks.write_text(TASKS.replace("sqs_heartbeat=", "sqs_heartbeats="))
    ended = manage("check")
    assert ended.returncode == 1
    assert "sqs_heartbeats: has no effect; did you mean sqs_heartbeat?" in ended.stderr


def test_a_project_that_does_not_call_install_gets_an_error(manage: Manage, project: Path) -> None:
    celery = project / "proj" / "celery.py"
    celery.write_text(CELERY.replace('install(Celery("proj"))', 'Celery("proj")'))
    ended = manage("check")
    assert ended.returncode == 1
    assert "(celery_sqs_heartbeat.E003) install(app) was not called" in ended.stderr
    assert "HINT: Where the app is made, add:" in ended.stderr


@pytest.mark.parametrize(
    ("conf", "warning"),
    [
        ({"CELERY_TASK_ACKS_LATE": False}, "W101) CELERY_TASK_ACKS_LATE=False: messages are"),
        (
            {"CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT": True},
            "W103) CELERY_TASK_ACKS_ON_FAILURE_OR_TIMEOUT=True: messages of failed tasks",
        ),
        ({"CELERY_BROKER_URL": "memory://"}, "W002) the broker is not SQS: memory"),
    ],
)
def test_a_setting_that_may_be_intended_is_a_warning(
    manage: Manage, conf: dict[str, Any], warning: str
) -> None:
    ended = manage("check", **conf)
    assert ended.returncode == 0
    assert f"(celery_sqs_heartbeat.{warning}" in ended.stderr
    assert manage("check", "--fail-level", "WARNING", **conf).returncode == 1


def test_a_check_can_be_silenced(manage: Manage) -> None:
    silenced = ["celery_sqs_heartbeat.W101"]
    ended = manage("check", CELERY_TASK_ACKS_LATE=False, SILENCED_SYSTEM_CHECKS=silenced)
    assert "(1 silenced)" in ended.stdout
    assert "W101" not in ended.stderr


def test_an_app_that_no_one_imports_is_found_by_the_setting(manage: Manage, project: Path) -> None:
    (project / "proj" / "__init__.py").write_text("")
    unfound = manage("check")
    assert unfound.returncode == 0
    assert "(celery_sqs_heartbeat.W007) no Celery app was found" in unfound.stderr
    found = manage("check", HEARTBEAT_SQS_APP="proj.celery:app")
    assert "System check identified no issues" in found.stdout


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("proj.celery:nothing", "the module proj.celery has no 'nothing'"),
        ("proj.celry:app", "ModuleNotFoundError: No module named 'proj.celry'"),
        ("proj.celery:os", "it is of type module"),
        (5, "it must be a string"),
        ("", "it is empty"),
    ],
)
def test_a_setting_that_names_no_app_is_an_error(manage: Manage, path: object, reason: str) -> None:
    checked = manage("check", HEARTBEAT_SQS_APP=path)
    assert checked.returncode == 1
    assert "Traceback" not in checked.stderr
    assert f"HEARTBEAT_SQS_APP={path!r} ({reason}): the setting names no" in checked.stderr
    examined = manage("sqs_heartbeat_doctor", "--json", HEARTBEAT_SQS_APP=path)
    assert examined.returncode == 2
    assert [each["id"] for each in json.loads(examined.stdout)] == ["SQSHB-E014"]


def test_the_app_is_found_from_a_thread_that_did_not_make_it(manage: Manage) -> None:
    """As `runserver` checks."""
    code = (
        "import threading, django; from django.core.management import call_command; "
        "thread = threading.Thread(target=call_command, args=('check',)); "
        "thread.start(); thread.join()"
    )
    ended = manage("shell", "-c", code)
    assert "no Celery app was found" not in ended.stderr
    assert "System check identified no issues" in ended.stdout


def test_one_of_several_apps_has_to_be_named(manage: Manage, project: Path) -> None:
    shop = """
from django.apps import AppConfig

class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        from celery import Celery

        self.other = Celery("other")
"""
    (project / "shop" / "apps.py").write_text(shop)
    unnamed = manage("check")
    assert unnamed.returncode == 1
    assert (
        "(celery_sqs_heartbeat.E015) HEARTBEAT_SQS_APP=None ('proj' was current at Django's start, "
        "'other' is now): there are several Celery apps"
    ) in unnamed.stderr
    assert "HINT: Set HEARTBEAT_SQS_APP to the module and the name of the workers" in unnamed.stderr
    assert manage("sqs_heartbeat_doctor").returncode == 2
    named = manage("check", HEARTBEAT_SQS_APP="proj.celery:app")
    assert "System check identified no issues" in named.stdout


def test_the_doctor_is_a_command_of_the_project(manage: Manage) -> None:
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="celery")
        broker = {"CELERY_BROKER_URL": server.broker_url}
        ended = manage("sqs_heartbeat_doctor", **broker)
        assert ended.returncode == 0, ended.stderr
        assert "WARNING  queue celery: the queue has no redrive policy" in ended.stdout
        assert ended.stdout.rstrip().endswith("passed.")
        assert manage("sqs_heartbeat_doctor", "--strict", **broker).returncode == 1
        as_json = manage("sqs_heartbeat_doctor", "--json", "-Q", "celery", "-P", "solo", **broker)
        ids = {each["id"] for each in json.loads(as_json.stdout)}
        assert {"SQSHB-W204", "SQSHB-P301", "SQSHB-P008"} <= ids


def test_the_doctor_reports_errors_that_keep_other_commands_from_running(manage: Manage) -> None:
    ended = manage("sqs_heartbeat_doctor", CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1)
    assert ended.returncode == 2
    assert "CELERY_SQS_HEARTBEAT_VISIBILITY_TIMEOUT=-1" in ended.stdout
    assert "SQS can't be reached" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_the_document_is_true(manage: Manage, project: Path) -> None:
    settings, celery = blocks("docs/django.md", "python")
    (project / "proj" / "celery.py").write_text(celery)
    begin = 'SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\n'
    (project / "proj" / "settings.py").write_text(begin + settings)
    ended = manage("check")
    assert ended.returncode == 0, ended.stderr
    assert "System check identified no issues" in ended.stdout

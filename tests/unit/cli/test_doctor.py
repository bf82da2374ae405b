"""`celery -A proj sqs-heartbeat doctor`, for apps whose queues are on a simulated SQS."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from celery import Celery
from celery.app import default_app
from click.testing import CliRunner, Result

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import app as cli_app
from celery_sqs_heartbeat.cli import pages, queues, sqs_heartbeat
from celery_sqs_heartbeat.cli.doctor import exit_status, print_findings
from celery_sqs_heartbeat.cli.examination import RULES, examine
from celery_sqs_heartbeat.cli.findings import Found, RuleTable, as_lines
from celery_sqs_heartbeat.cli.machine import Place, read_machine
from celery_sqs_heartbeat.journal import shipping
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs import clients
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support import s3
from tests.support.golden import golden
from tests.support.insides import hide_shared_tasks
from tests.support.observed import observed
from tests.support.servers import free_port
from tests.support.waiting import PATIENCE

#: Settings of a sound app: a test looks only at what it changed.
SOUND = {
    "task_acks_late": True,
    "task_acks_on_failure_or_timeout": False,
    "task_time_limit": 600,
    "worker_eta_task_limit": 100,
    "worker_concurrency": 2,
    "sqs_heartbeat_enabled": True,
    "task_default_queue": "work",
}
OPTIONS = {"region": "us-east-1", "is_secure": False}
RULE = {rule.id.removeprefix("SQSHB-"): rule for rule in RULES}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call take as long as it needs, and hide the tasks of other tests."""
    hide_shared_tasks(monkeypatch)
    monkeypatch.setattr(queues, "_PATIENT", 2 * PATIENCE)
    monkeypatch.setattr(clients, "MAX_TIMEOUT", PATIENCE)
    monkeypatch.setattr(shipping, "_TIMEOUT", PATIENCE)


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatedServer]:
    """A server with a sound queue, and others."""
    with SimulatedServer() as server:
        client = server.client()
        client.create_queue(QueueName="dead")
        policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead"}
        for name, count in {"work": 5, "few": 2, "fewer": 1}.items():
            redrive = json.dumps({**policy, "maxReceiveCount": count})
            client.create_queue(QueueName=name, Attributes={"RedrivePolicy": redrive})
        client.create_queue(QueueName="q2", Attributes={"VisibilityTimeout": "5"})
        client.create_queue(QueueName="q10", Attributes={"VisibilityTimeout": "5"})
        yield server


def app_at(server: SimulatedServer, **conf: Any) -> Any:
    app = install(Celery("proj", broker=server.broker_url, set_as_current=False))
    app.conf.update({**SOUND, "broker_transport_options": OPTIONS, **conf})
    return app


def run(app: Any, line: str, **options: Any) -> Result:
    context = SimpleNamespace(app=app, no_color=False)
    runner = CliRunner(env={"COLUMNS": "100"})
    return runner.invoke(sqs_heartbeat, line.split(), obj=context, **options)


def test_the_output_for_people_and_for_scripts(
    server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"celery": "5.7.0", "kombu": "5.7.0"}
    monkeypatch.setattr(cli_app, "running_versions", lambda: versions)
    app = app_at(
        server,
        task_acks_late=False,
        sqs_heartbeat_threshold=-1,
        sqs_heartbeat_interval="x",
        task_queues={name: {} for name in ("work", "few", "fewer", "q10", "q2", "new")},
    )
    as_json, colored = run(app, "doctor --json"), run(app, "doctor", color=True)
    assert as_json.exit_code == colored.exit_code == 2
    assert as_json.stderr == colored.stderr == ""
    text = click.unstyle(colored.stdout)
    assert text != colored.stdout
    for name, output in (("doctor.txt", text), ("doctor.json", as_json.stdout)):
        golden(name, output)


@pytest.mark.parametrize("color", [False, None])
def test_a_file_gets_the_same_text_without_colors(color: bool | None) -> None:
    findings, file = [RULE["E001"].found(value="a"), RULE["P008"].found()], io.StringIO()
    print_findings(findings, json=False, color=color, file=file)
    assert file.getvalue() == click.unstyle("\n".join([*as_lines(findings), ""]))


def test_lines_are_wrapped_to_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = as_lines([rule.found() for rule in RULES])
    assert [line for line in lines if len(click.unstyle(line)) > 60] == []


def test_control_characters_do_not_reach_the_terminal() -> None:
    evil = "a\x1b[31m\nb"
    lines = as_lines(RULE["E001"].found(value=each, setting=evil) for each in (evil, "c"))
    assert all(click.unstyle(line).isprintable() for line in lines)
    assert r"\x1b[31m" in "".join(lines)


def test_without_docstrings_a_finding_names_the_way_out() -> None:
    def check() -> list[Found]:
        return []

    assert RuleTable().rule("SQSHB-E001", "it is wrong")(check).fix == "Run the doctor without -OO."


@pytest.mark.parametrize(
    ("found", "strict", "status"),
    [
        ("", False, 0),
        ("", True, 0),
        ("I008 P008", True, 0),
        ("W101 I008", False, 0),
        ("W101 I008", True, 1),
        ("E001 W101", False, 2),
        ("E001 W101", True, 2),
    ],
)
def test_the_exit_status(found: str, strict: bool, status: int) -> None:
    findings = [RULE[id_].found() for id_ in found.split()]
    assert exit_status(findings, strict=strict) == status


@pytest.mark.parametrize(
    ("line", "conf", "status"),
    [
        ("doctor --strict", {}, 0),
        ("doctor -c auto", {"worker_concurrency": "auto"}, 0),
        ("doctor", {"task_acks_late": False}, 0),
        ("doctor --strict", {"task_acks_late": False}, 1),
        ("doctor -P preforc", {}, 2),
        ("doctor -Q work,wrok", {}, 2),
    ],
)
def test_the_command_exits_with_it(
    server: SimulatedServer, line: str, conf: dict[str, Any], status: int
) -> None:
    assert run(app_at(server, **conf), line).exit_code == status


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor -Q ,", "',' has an empty name in it"),
        ("doctor -Q work,", "'work,' has an empty name in it"),
        ("doctor -c -1", "'-1' must be a whole number, 0 or more, or 'auto'"),
        ("doctor -c " + "9" * 5000, "must be a whole number, 0 or more, or 'auto'"),
        ("iam -Q ,", "',' has an empty name in it"),
        (
            "iam -Q " + "q" * 81,
            "can't be a queue's name on SQS: use 1 to 80 letters, digits, - and",
        ),
        ("iam --account 12", "'12' must be 12 digits"),
        ("iam --region nowhere", "'nowhere' must be a region's name, such as eu-west-1"),
    ],
)
def test_wrong_options_are_refused(server: SimulatedServer, line: str, said: str) -> None:
    ended = run(app_at(server), line)
    assert ended.exit_code == 2
    assert said in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("conf", "queues", "id_", "queue", "value"),
    [
        ({"task_create_missing_queues": False}, ["nope"], "E006", "nope", None),
        ({"task_default_queue": ""}, [], "E217", None, None),
        (
            {"sqs_heartbeat_queues": {"wrok": {}}},
            [],
            "W009",
            "wrok",
            "'wrok'; did you mean 'work'?",
        ),
        ({"task_queues": {"new": {}}}, [], "W202", "new", None),
        ({}, ["wrok"], "E220", "wrok", None),
    ],
)
def test_a_queue_that_is_missing_is_found(
    server: SimulatedServer,
    conf: dict[str, Any],
    queues: list[str],
    id_: str,
    queue: str | None,
    value: str | None,
) -> None:
    app = app_at(server, **conf)
    (found,) = [f for f in examine(app, queues=queues) if f.id == f"SQSHB-{id_}"]
    assert (found.queue, found.value) == (queue, value)


def test_settings_of_another_workers_queue_are_right(server: SimulatedServer) -> None:
    app = app_at(server, sqs_heartbeat_queues={"dead": {"visibility_timeout": 60}})
    assert "SQSHB-W009" not in [finding.id for finding in examine(app)]


def test_settings_are_named_as_the_app_writes_them(server: SimulatedServer) -> None:
    app = install(Celery("proj", set_as_current=False))
    conf = {**SOUND, "broker_url": server.broker_url, "broker_transport_options": OPTIONS}
    named = {f"CELERY_{name.upper()}": value for name, value in conf.items()}
    app.config_from_object({**named, "CELERY_TASK_ACKS_LATE": False}, namespace="CELERY")
    (found,) = [finding for finding in examine(app) if finding.id == "SQSHB-W101"]
    assert (found.setting, found.fix) == (
        "CELERY_TASK_ACKS_LATE",
        "Set CELERY_TASK_ACKS_LATE = True.",
    )


def test_without_an_app_the_doctor_asks_for_it() -> None:
    assert [finding.id for finding in examine(default_app)] == ["SQSHB-E007"]
    assert run(default_app, "iam").stderr.startswith("Error: no Celery app was found: name it")


@pytest.mark.parametrize("kind", ["file", "below a file", "fine", "to be made"])
def test_a_journal_is_tried_and_nothing_is_left_behind(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "fine").mkdir()
    path = {"below a file": "file/journal", "to be made": "a/b"}.get(kind, kind)
    before = sorted(tmp_path.rglob("*"))
    machine = read_machine(Settings(journal=str(tmp_path / path)), [])
    assert machine.journal is (Place.UNUSABLE if "file" in kind else Place.USABLE)
    assert bool(machine.journal_why) is ("file" in kind)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("target", "place", "why"),
    [
        (f"s3://{s3.BUCKET}/prod", Place.UNTRIED, ""),
        ("s3://missing/prod", Place.NO_BUCKET, "there is no such bucket"),
    ],
)
def test_the_bucket_of_a_journal_is_asked_for_and_not_written_to(
    monkeypatch: pytest.MonkeyPatch, target: str, place: Place, why: str
) -> None:
    with s3.serving(monkeypatch) as client:
        machine = read_machine(Settings(journal=target), [])
        assert "Contents" not in client.list_objects_v2(Bucket=s3.BUCKET)
    assert (machine.journal, machine.journal_why) == (place, why)


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("AccessDenied", Place.UNTRIED),
        ("SignatureDoesNotMatch", Place.NO_BUCKET),
        ("InvalidAccessKeyId", Place.NO_BUCKET),
    ],
)
def test_a_denied_bucket_differs_from_wrong_keys(
    monkeypatch: pytest.MonkeyPatch, code: str, place: Place
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(f"<Error><Code>{code}</Code></Error>".encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        for name, value in s3.environment(refusing.server_port).items():
            monkeypatch.setenv(name, value)
        machine = read_machine(Settings(journal="s3://journals/prod"), [])
        refusing.shutdown()
    assert machine.journal is place
    assert machine.journal_why == ("" if place is Place.UNTRIED else code)


def test_a_bucket_that_can_not_be_reached_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(free_port()).items():
        monkeypatch.setenv(name, value)
    machine = read_machine(Settings(journal="s3://journals/prod"), [])
    assert (machine.journal, machine.journal_why) == (Place.NO_BUCKET, "EndpointConnectionError")


def test_the_address_of_the_status_page_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = Settings(status=f"127.0.0.1:{other.getsockname()[1]}")
        assert read_machine(taken, []).page is Place.UNUSABLE
    assert read_machine(taken, []).page is Place.USABLE
    monkeypatch.setattr(pages, "PATIENCE", PATIENCE)
    with observed() as scene:
        ours = Settings(status=scene.url.removeprefix("http://"))
        assert read_machine(ours, []).page is Place.OURS
        # It answers with 503 then.
        scene.keeper.stop()
        assert read_machine(ours, []).page is Place.OURS


def test_other_celery_commands_import_nothing_for_these() -> None:
    code = "import sys, celery_sqs_heartbeat.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"boto3", "celery", "kombu", "django", "flask", "urllib.request"} & set(loaded)
    assert not [name for name in loaded if name.startswith("celery_sqs_heartbeat.journal")]

"""`celery -A proj sqs-heartbeat doctor`, for apps whose queues are on a simulated SQS."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from celery import Celery

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import app as cli_app
from celery_sqs_heartbeat.cli.doctor import print_findings
from celery_sqs_heartbeat.cli.examination import FINDINGS, examine
from celery_sqs_heartbeat.cli.findings import as_lines, rules_in
from celery_sqs_heartbeat.cli.machine import Place, read_machine
from celery_sqs_heartbeat.journal import shipping
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support import aws
from tests.support.golden import golden
from tests.support.observed import observed
from tests.support.servers import free_port
from tests.support.waiting import PATIENCE
from tests.unit.cli.conftest import MADE_UP, SOUND, app_at, run


def test_the_output_for_people_and_for_scripts(
    server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"celery": "5.7.0", "kombu": "5.7.0"}
    monkeypatch.setattr(cli_app, "running_versions", lambda: versions)
    app = app_at(
        server.broker_url,
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


def test_lines_fit_a_narrow_terminal_and_a_file_and_hide_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    evil = "a\x1b[31m\nb"
    findings = [*FINDINGS.values(), *(FINDINGS["E001"].at(evil, each) for each in (evil, "c"))]
    lines = [click.unstyle(line) for line in as_lines(findings)]
    assert [line for line in lines if len(line) > 60 or not line.isprintable()] == []
    assert r"\x1b[31m" in "".join(lines)
    for color in (False, None):
        file = io.StringIO()
        print_findings(findings, json=False, color=color, file=file)
        assert file.getvalue() == "\n".join([*lines, ""])


def test_without_docstrings_a_finding_names_the_way_out() -> None:
    def e001() -> None: ...

    module = ModuleType("without")
    vars(module)["e001"] = e001
    (rule,) = rules_in(module)
    assert (rule.finding.title, rule.finding.fix) == ("SQSHB-E001", "Run the doctor without -OO.")


@pytest.mark.parametrize(
    ("line", "conf", "status"),
    [
        ("doctor --strict", {}, 0),
        ("doctor -c auto", {"worker_concurrency": "auto"}, 0),
        ("doctor", {"task_acks_late": False}, 0),
        ("doctor --strict", {"task_acks_late": False}, 1),
        ("doctor -P preforc", {}, 2),
        ("doctor --strict -Q work,wrok", {"task_acks_late": False}, 2),
    ],
)
def test_the_exit_status(
    server: SimulatedServer, line: str, conf: dict[str, Any], status: int
) -> None:
    assert run(app_at(server.broker_url, **conf), line).exit_code == status


WRONG = ("-Q ,", "-Q work,", "-c -1", "-c x", "-c " + "9" * 5000)


def test_wrong_options_are_refused_in_one_line(server: SimulatedServer) -> None:
    ended = [run(app_at(server.broker_url), f"doctor {options}") for options in WRONG]
    assert [each.exit_code for each in ended] == [2] * len(WRONG)
    golden("doctor_refused.txt", "".join(f"{each.stderr.splitlines()[-1]}\n" for each in ended))


#: Settings, the queues of -Q, and the finding about a queue that is missing.
MISSING: list[tuple[dict[str, Any], list[str], str]] = [
    ({"task_create_missing_queues": False}, ["nope"], "E006 nope None"),
    ({"task_default_queue": ""}, [], "E217 None None"),
    ({"sqs_heartbeat_queues": {"wrok": {}}}, [], "W009 wrok 'wrok'; did you mean 'work'?"),
    ({"task_queues": {"new": {}}}, [], "W202 new None"),
    ({}, ["wrok"], "E220 wrok None"),
    # Another worker consumes from it.
    ({"sqs_heartbeat_queues": {"dead": {"visibility_timeout": 60}}}, [], ""),
]


@pytest.mark.parametrize(("conf", "queues", "expected"), MISSING)
def test_a_queue_that_is_missing_is_found(
    server: SimulatedServer, conf: dict[str, Any], queues: list[str], expected: str
) -> None:
    found = examine(app_at(server.broker_url, **conf), queues=queues)
    about = [each for each in found if each.id[-4:] in ("E006", "E217", "W009", "W202", "E220")]
    assert [f"{each.id[-4:]} {each.queue} {each.value}" for each in about] == (
        [expected] if expected else []
    )


def test_settings_are_named_as_the_app_writes_them(server: SimulatedServer) -> None:
    app = install(Celery("proj", set_as_current=False))
    conf = {**SOUND, "broker_url": server.broker_url, "task_acks_late": False}
    named = {f"CELERY_{name.upper()}": value for name, value in conf.items()}
    app.config_from_object(named, namespace="CELERY")
    (found,) = [finding for finding in examine(app) if finding.id == "SQSHB-W101"]
    assert found.setting == "CELERY_TASK_ACKS_LATE"
    assert found.fix == "Set CELERY_TASK_ACKS_LATE = True."


def test_without_an_app_the_doctor_asks_for_it() -> None:
    assert [finding.id for finding in examine(MADE_UP)] == ["SQSHB-E007"]


@pytest.mark.parametrize("kind", ["file", "below a file", "fine", "to be made"])
def test_a_journal_is_tried_and_nothing_is_left_behind(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "fine").mkdir()
    path = {"below a file": "file/journal", "to be made": "a/b"}.get(kind, kind)
    before = sorted(tmp_path.rglob("*"))
    machine = read_machine(Settings(journal=str(tmp_path / path)), [])
    assert machine.journal.place is (Place.UNUSABLE if "file" in kind else Place.USABLE)
    assert bool(machine.journal.why) is ("file" in kind)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("status", "code", "place", "why"),
    [
        (200, "", Place.UNTRIED, ""),
        (403, "AccessDenied", Place.UNTRIED, ""),
        (403, "SignatureDoesNotMatch", Place.NO_BUCKET, "SignatureDoesNotMatch"),
        (403, "InvalidAccessKeyId", Place.NO_BUCKET, "InvalidAccessKeyId"),
        (404, "NoSuchBucket", Place.NO_BUCKET, "there is no such bucket"),
        (0, "", Place.NO_BUCKET, "EndpointConnectionError"),
    ],
)
def test_the_bucket_of_a_journal_is_listed_and_not_written_to(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, place: Place, why: str
) -> None:
    class Answering(BaseHTTPRequestHandler):
        # It answers no other method, such as PUT.
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            error = f"<Error><Code>{code}</Code></Error>"
            self.wfile.write((error if code else "<ListBucketResult/>").encode())

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr(shipping, "_TIMEOUT", PATIENCE)
    with HTTPServer(("127.0.0.1", 0), Answering) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        for name, value in aws.environment(
            answering.server_port if status else free_port()
        ).items():
            monkeypatch.setenv(name, value)
        journal = read_machine(Settings(journal="s3://journals/prod"), []).journal
        answering.shutdown()
    assert journal[:2] == (place, why)


def test_a_spool_that_another_user_could_have_made_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"celery-sqs-heartbeat-journal-{os.geteuid()}").symlink_to(tmp_path)
    journal = read_machine(Settings(journal="s3://journals/prod"), []).journal
    assert journal.place is Place.UNUSABLE
    assert "or use another folder" in journal.why


def test_the_address_of_the_status_page_is_tried() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = Settings(status=f"127.0.0.1:{other.getsockname()[1]}")
        assert read_machine(taken, []).page.place is Place.UNUSABLE
    assert read_machine(taken, []).page.place is Place.USABLE
    with observed() as scene:
        ours = Settings(status=scene.url.removeprefix("http://"))
        assert read_machine(ours, []).page.place is Place.OURS
        # It answers with 503 then.
        scene.keeper.stop()
        assert read_machine(ours, []).page.place is Place.OURS


def test_other_celery_commands_import_nothing_for_these() -> None:
    code = "import sys, celery_sqs_heartbeat.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"boto3", "celery", "kombu", "django", "flask", "urllib.request"} & set(loaded)
    assert not [name for name in loaded if name.startswith("celery_sqs_heartbeat.journal")]

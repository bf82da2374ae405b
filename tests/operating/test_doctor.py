"""`celery -A proj sqs-heartbeat doctor` and `iam`, as a user runs them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli import page_requests
from celery_sqs_heartbeat.cli.app.offline_broker import Broker
from celery_sqs_heartbeat.cli.doctor.checks import fifo
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.doctor.checks.machine import check_clock
from celery_sqs_heartbeat.cli.doctor.examination import examine
from celery_sqs_heartbeat.cli.doctor.finding_groups import Group, headline
from celery_sqs_heartbeat.cli.iam.iam_policy import SEND
from celery_sqs_heartbeat.cli.queues import queue_inspector
from celery_sqs_heartbeat.cli.queues.queue_inspector import QueueInspector
from celery_sqs_heartbeat.journal import shipping
from celery_sqs_heartbeat.sqs import clients
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support import s3
from tests.support.answers import Answer, Body
from tests.support.faults import Forward, deny, fail, reset, throttle
from tests.support.insides import hide_shared_tasks
from tests.support.observed import observed
from tests.support.proxy import FaultProxy
from tests.support.servers import SqsServer, free_port
from tests.support.waiting import PATIENCE
from tests.support.warm.client import run_forked
from tests.support.workers import ROOT, SAFE_ENV

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: The findings about a sound app: a test looks only at what it changed.
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
PROJ = f"""
import json, os
from celery import Celery
from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli.queues import queue_inspector
from celery_sqs_heartbeat.sqs import clients

# As `patient_calls`.
queue_inspector._PATIENT, clients.MAX_TIMEOUT = {2 * PATIENCE}, {PATIENCE}
app = install(Celery("proj", broker=os.environ["PROJ_BROKER"]))
app.conf.update(json.loads(os.environ["PROJ_CONF"]))

@app.task
def add(x, y):
    return x + y
"""


@pytest.fixture(autouse=True)
def _no_tasks_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery shares the tasks of an app with all apps of the process."""
    hide_shared_tasks(monkeypatch)


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call of AWS by an examination in this process take as long as it needs."""
    monkeypatch.setattr(queue_inspector, "_PATIENT", 2 * PATIENCE)
    monkeypatch.setattr(clients, "MAX_TIMEOUT", PATIENCE)
    monkeypatch.setattr(shipping, "_TIMEOUT", PATIENCE)


@pytest.fixture
def proxy(simulated: SimulatedServer) -> Iterator[FaultProxy]:
    with FaultProxy(simulated.url) as running:
        yield running


@pytest.fixture
def simulated() -> Iterator[SimulatedServer]:
    """A server with a sound queue."""
    with SimulatedServer() as server:
        client = server.client()
        client.create_queue(QueueName="dead")
        policy = json.dumps(
            {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": 5}
        )
        client.create_queue(QueueName="work", Attributes={"RedrivePolicy": policy})
        yield server


@pytest.fixture
def run(tmp_path: Path, proxy: FaultProxy) -> Run:
    (tmp_path / "proj.py").write_text(PROJ)

    def run(*args: str, broker: str = proxy.broker_url, **conf: Any) -> Any:
        settings = {**SOUND, "broker_transport_options": OPTIONS, **conf}
        return run_forked(
            [sys.executable, "-m", "celery", "-A", "proj", "sqs-heartbeat", *args],
            env={
                **os.environ,
                **SAFE_ENV,
                "COLUMNS": "100",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
                "PROJ_BROKER": broker,
                "PROJ_CONF": json.dumps(settings),
            },
            cwd=tmp_path,
        )

    return run


def app_at(broker_url: str, **conf: Any) -> Any:
    app = install(Celery("proj", broker=broker_url, set_as_current=False))
    app.conf.update({**SOUND, "broker_transport_options": OPTIONS, **conf})
    return app


def found(findings: list[Finding], *but: str) -> dict[str, str | None]:
    """Return the values of findings by id, without the findings that every app has."""
    always = {"SQSHB-P008", "SQSHB-P201", "SQSHB-P301", "SQSHB-P505", "SQSHB-I303", "SQSHB-I504"}
    return {f.id: f.value for f in findings if f.id not in always - set(but)}


def test_a_sound_queue_passes_and_nothing_is_received_or_changed(
    run: Run, proxy: FaultProxy, simulated: SimulatedServer
) -> None:
    client = simulated.client()
    url = client.get_queue_url(QueueName="work")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="precious")
    ended = run("doctor", "--strict")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert "OK       queue work: the queue exists: visibility timeout 30 s" in lines
    assert lines[-1] == "0 errors, 0 warnings, 2 notes, 4 checks passed."
    assert "testing" not in ended.stdout
    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["ApproximateReceiveCount"])[
        "Messages"
    ]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_errors_and_warnings_set_the_exit_status(run: Run) -> None:
    warned = run("doctor", task_acks_late=False)
    assert warned.returncode == 0
    assert "WARNING  task_acks_late=False: messages are deleted before their tasks" in warned.stdout
    assert run("doctor", "--strict", task_acks_late=False).returncode == 1
    failed = run("doctor", sqs_heartbeat_threshold=40)
    assert failed.returncode == 2
    assert "threshold=40 must be below" in failed.stdout


def test_json_is_a_list_of_findings_and_nothing_else(run: Run) -> None:
    ended = run("doctor", "--json", "-Q", "work,elsewhere", task_queues={"elsewhere": {}})
    assert ended.returncode == 0
    findings = json.loads(ended.stdout)
    fields = {"severity", "id", "title", "why", "fix", "queue", "setting", "value"}
    assert {frozenset(each) for each in findings} == {frozenset(fields)}
    assert [(each["id"], each["queue"]) for each in findings if each["severity"] == "warning"] == [
        ("SQSHB-W202", "elsewhere")
    ]


def test_a_queue_that_neither_sqs_nor_the_app_has_is_an_error(run: Run) -> None:
    ended = run("doctor", "-Q", "work,wrok")
    assert ended.returncode == 2
    assert "wrok: the queue that -Q names does not exist" in ended.stdout


@pytest.mark.parametrize(
    ("operation", "id_", "permission"),
    [
        ("ListQueues", "SQSHB-E301", "sqs:ListQueues"),
        ("ReceiveMessage", "SQSHB-E301", "sqs:ReceiveMessage"),
        ("ChangeMessageVisibilityBatch", "SQSHB-E301", "sqs:ChangeMessageVisibility"),
        ("DeleteMessageBatch", "SQSHB-E301", "sqs:DeleteMessage"),
        ("GetQueueAttributes", "SQSHB-W302", "sqs:GetQueueAttributes"),
    ],
)
def test_a_missing_permission_is_named(
    proxy: FaultProxy, operation: str, id_: str, permission: str
) -> None:
    proxy.rule(operation, deny())
    assert found(examine(app_at(proxy.broker_url))) == {id_: permission}


def test_with_a_missing_permission_the_exit_status_is_2(run: Run, proxy: FaultProxy) -> None:
    proxy.rule("DeleteMessageBatch", deny())
    ended = run("doctor")
    assert ended.returncode == 2
    assert "ERROR    queue work: permissions are missing: sqs:DeleteMessage" in ended.stdout


def test_every_permission_is_tried(proxy: FaultProxy) -> None:
    (tried,) = [f for f in examine(app_at(proxy.broker_url)) if f.id == "SQSHB-P301"]
    assert (tried.value or "").split(", ") == [
        "sqs:ListQueues",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
    ]
    (receive,) = proxy.calls("ReceiveMessage")
    assert receive.body["MaxNumberOfMessages"] == 0
    assert receive.answer is not None
    assert "Messages" not in receive.answer


def test_a_failed_call_prints_no_traceback(run: Run) -> None:
    ended = run("doctor", broker="sqs://AKIDEXAMPLE:wJalrXUtnFEMI@127.0.0.1:1")
    assert ended.returncode == 2
    assert "SQS can't be reached" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "wJalrXUtnFEMI" not in ended.stdout + ended.stderr
    assert "AKIDEXAMPLE" not in ended.stdout + ended.stderr


def test_a_url_that_cant_be_read_is_a_finding_without_its_keys(run: Run) -> None:
    ended = run("doctor", broker="sqs://AKIDEXAMPLE:wJal/rXU:tnFEMI@")
    assert ended.returncode == 2
    assert "broker_url can't be read" in ended.stdout
    assert "rXU" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("effect", "id_", "value"),
    [
        (throttle(), "SQSHB-W306", "RequestThrottled"),
        (fail(500), "SQSHB-W306", "InternalError"),
        (fail(403, "SignatureDoesNotMatch"), "SQSHB-E305", "SignatureDoesNotMatch"),
        (fail(400, "InvalidSecurityPolicy"), "SQSHB-W307", "InvalidSecurityPolicy"),
    ],
)
def test_why_sqs_did_not_answer(proxy: FaultProxy, effect: Any, id_: str, value: str) -> None:
    proxy.rule("*", effect)
    unchecked = {"SQSHB-E308": "1 of 1 (work)"}
    assert found(examine(app_at(proxy.broker_url))) == {id_: value, **unchecked}


@pytest.mark.parametrize("operation", ["*", "GetQueueAttributes", "DeleteMessageBatch"])
def test_queues_that_could_not_be_checked_are_an_error(
    run: Run, proxy: FaultProxy, operation: str
) -> None:
    proxy.rule(operation, throttle())
    ended = run("doctor")
    assert ended.returncode == 2
    assert "ERROR    queues could not be checked: 1 of 1 (work)" in ended.stdout


def test_if_everything_is_denied_every_action_is_named(run: Run, proxy: FaultProxy) -> None:
    proxy.rule("*", deny())
    ended = run("doctor")
    assert ended.returncode == 2
    for action in (
        "ListQueues",
        "GetQueueAttributes",
        "ReceiveMessage",
        "ChangeMessageVisibility",
        "DeleteMessage",
    ):
        assert f"sqs:{action}" in ended.stdout, action


def test_without_the_list_of_queues_the_queue_is_still_checked(proxy: FaultProxy) -> None:
    proxy.rule("ListQueues", deny())
    seen = found(examine(app_at(proxy.broker_url)), "SQSHB-P201")
    assert seen == {"SQSHB-E301": "sqs:ListQueues", "SQSHB-P201": "visibility timeout 30 s"}


def test_a_missing_dead_letter_queue_and_a_broken_order_of_a_fifo_queue_are_found(
    run: Run, simulated: SimulatedServer
) -> None:
    client = simulated.client()
    is_fifo = {"FifoQueue": "true"}
    dead = client.create_queue(QueueName="lost.fifo", Attributes=is_fifo)["QueueUrl"]
    told = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": told["QueueArn"], "maxReceiveCount": 5}
    client.create_queue(
        QueueName="jobs.fifo",
        Attributes={
            **is_fifo,
            "ContentBasedDeduplication": "true",
            "RedrivePolicy": json.dumps(policy),
        },
    )
    order = {"task_default_queue": "jobs.fifo", "sqs_heartbeat_fifo_batch": 10}
    before = of_fifo(run("doctor", "--json", **order))
    assert set(before) == {"SQSHB-I025", "SQSHB-I026", "SQSHB-I028", "SQSHB-W031"}
    client.delete_queue(QueueUrl=dead)
    ended = run("doctor", "--strict", "--json", **order, sqs_heartbeat_fifo_retry="send")
    assert ended.returncode == 1
    assert of_fifo(ended) == {
        "SQSHB-W023": "lost.fifo",
        "SQSHB-I025": "perQueue",
        "SQSHB-I026": "default",
        "SQSHB-W027": "'send'",
        "SQSHB-W031": "10 (maxReceiveCount 5)",
    }


def of_fifo(ended: Any) -> dict[str, str | None]:
    """Return the values of the findings about FIFO queues, by id."""
    ids = {kind.id for kind in fifo.KINDS}
    findings = [each for each in json.loads(ended.stdout) if each["id"] in ids]
    assert {each["queue"] for each in findings} == {"jobs.fifo"}
    return {each["id"]: each["value"] for each in findings}


def test_a_finding_about_ten_queues_is_printed_once(run: Run, simulated: SimulatedServer) -> None:
    names = [f"q{number}" for number in range(10)]
    for name in names:
        simulated.client().create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5"})
    ended = run("doctor", "-Q", ",".join(names))
    assert len(ended.stdout.splitlines()) < 40
    assert ended.stdout.count("the visibility timeout is too short") == 1
    assert all(name in ended.stdout for name in names)


@pytest.mark.parametrize(("timeout", "is_short"), [(1, True), (5, True), (14, True), (15, False)])
def test_a_visibility_timeout_that_is_too_short_is_found(
    proxy: FaultProxy, simulated: SimulatedServer, timeout: int, is_short: bool
) -> None:
    by_setting = app_at(proxy.broker_url, sqs_heartbeat_visibility_timeout=timeout)
    assert ("SQSHB-W213" in found(examine(by_setting))) is is_short
    client = simulated.client()
    url = client.get_queue_url(QueueName="work")["QueueUrl"]
    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(timeout)})
    assert ("SQSHB-W213" in found(examine(app_at(proxy.broker_url)))) is is_short


@pytest.mark.parametrize(
    ("conf", "id_"),
    [
        ({"sqs_heartbeat_interval": 8}, "SQSHB-W214"),
        ({"sqs_heartbeat_threshold": 2}, "SQSHB-W214"),
        ({"sqs_heartbeat_interval": 20}, "SQSHB-E203"),
    ],
)
def test_the_threshold_or_interval_that_leaves_no_time_for_a_third_call_is_named(
    proxy: FaultProxy, conf: dict[str, Any], id_: str
) -> None:
    assert list(found(examine(app_at(proxy.broker_url, **conf)))) == [id_]


def test_a_timeout_that_is_too_short_is_named_for_any_threshold(proxy: FaultProxy) -> None:
    conf = {"sqs_heartbeat_threshold": 2, "sqs_heartbeat_visibility_timeout": 5}
    seen = found(examine(app_at(proxy.broker_url, **conf)))
    assert "SQSHB-W213" in seen
    assert "SQSHB-W214" not in seen


@pytest.mark.parametrize(
    ("conf", "setting"),
    [
        ({"sqs_heartbeat_treshold": 5}, "sqs_heartbeat_treshold"),
        ({"sqs_heartbeat_on_lost": "kill"}, "sqs_heartbeat_on_lost"),
        (
            {"sqs_heartbeat_queues": {"work": {"max_lease": "1"}}},
            "sqs_heartbeat_queues['work']['max_lease']",
        ),
        ({"sqs_heartbeat_threshold": 40}, "threshold"),
        ({"broker_transport_options": {"region": 5}}, "broker_transport_options['region']"),
    ],
)
def test_a_fault_of_a_setting_names_it_for_scripts(
    proxy: FaultProxy, conf: dict[str, Any], setting: str
) -> None:
    findings = examine(app_at(proxy.broker_url, **conf))
    (error,) = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert error.setting == setting
    assert headline(Group([error])).count(f"{setting}=") <= 1


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("nope", "the pools are"),
        ("preforc", "did you mean prefork?"),
        ("no.such.module:Pool", "it can't be imported: ModuleNotFoundError"),
    ],
)
def test_an_unknown_pool_is_found(run: Run, pool: str, said: str) -> None:
    ended = run("doctor", "-P", pool)
    assert ended.returncode == 2
    assert "the pool can't be used" in ended.stdout
    assert said in " ".join(ended.stdout.split())


def test_concurrency_that_is_not_a_number_prints_no_traceback(run: Run) -> None:
    ended = run("doctor", worker_concurrency="auto")
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


def test_settings_of_an_unknown_queue_name_the_closest(proxy: FaultProxy) -> None:
    queues = {"wrok": {"visibility_timeout": 60}}
    seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_queues=queues)))
    assert seen == {"SQSHB-W009": "'wrok'; did you mean 'work'?"}


def test_settings_of_another_workers_queue_are_right(proxy: FaultProxy) -> None:
    queues = {"dead": {"visibility_timeout": 60}}
    assert found(examine(app_at(proxy.broker_url, sqs_heartbeat_queues=queues))) == {}


@pytest.mark.parametrize("kind", ["file", "below a file", "fine", "to be made"])
def test_a_journal_is_tried_and_nothing_is_left_behind(
    proxy: FaultProxy, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "fine").mkdir()
    path = {"below a file": "file/journal", "to be made": "a/b"}.get(kind, kind)
    before = sorted(tmp_path.rglob("*"))
    seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_journal=str(tmp_path / path))))
    assert set(seen) == ({"SQSHB-E506"} if "file" in kind else set())
    assert all(str(tmp_path / path) in str(value) for value in seen.values())
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("target", "id_", "value"),
    [
        (f"s3://{s3.BUCKET}/prod", "SQSHB-I509", ""),
        ("s3://missing/prod", "SQSHB-E508", "there is no such bucket"),
    ],
)
def test_the_bucket_of_a_journal_is_asked_for_and_not_written_to(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, target: str, id_: str, value: str
) -> None:
    with s3.serving(monkeypatch) as client:
        seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_journal=target)))
        assert "Contents" not in client.list_objects_v2(Bucket=s3.BUCKET)
    assert list(seen) == [id_]
    assert target in str(seen[id_])
    assert value in str(seen[id_])


@pytest.mark.parametrize(
    ("code", "found_"),
    [
        ("AccessDenied", {"SQSHB-I509": "s3://journals/prod"}),
        ("SignatureDoesNotMatch", {"SQSHB-E508": "s3://journals/prod (SignatureDoesNotMatch)"}),
        ("InvalidAccessKeyId", {"SQSHB-E508": "s3://journals/prod (InvalidAccessKeyId)"}),
    ],
)
def test_a_denied_bucket_differs_from_wrong_keys(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, code: str, found_: dict[str, str]
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(f"<Error><Code>{code}</Code></Error>".encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in s3.environment(server.server_port).items():
            monkeypatch.setenv(name, value)
        seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_journal="s3://journals/prod")))
        server.shutdown()
    assert seen == found_


def test_a_bucket_that_can_not_be_reached_is_found(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment(free_port()).items():
        monkeypatch.setenv(name, value)
    seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_journal="s3://journals/prod")))
    assert seen == {"SQSHB-E508": "s3://journals/prod (EndpointConnectionError)"}


def test_a_port_of_the_status_page_that_is_taken_is_found(proxy: FaultProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_status=address)))
    assert list(seen) == ["SQSHB-E510"]
    assert address in str(seen["SQSHB-E510"])
    assert found(examine(app_at(proxy.broker_url, sqs_heartbeat_status=address))) == {}


def test_a_page_of_a_worker_with_the_heartbeat_is_not_a_fault(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_requests, "PATIENCE", PATIENCE)
    with observed() as scene:
        address = scene.url.removeprefix("http://")
        seen = found(examine(app_at(proxy.broker_url, sqs_heartbeat_status=address)))
    assert seen == {"SQSHB-I511": address}


def test_tasks_that_can_not_be_imported_are_a_finding(run: Run) -> None:
    ended = run("doctor", imports=["there_is_no_such_module"])
    assert ended.returncode == 2
    assert "the app's tasks can't be imported" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_tasks_that_exit_the_process_during_import_are_a_finding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("raise SystemExit(3)")
    ended = run("doctor", imports=["ending"])
    assert ended.returncode == 2
    assert "the app's tasks can't be imported: SystemExit: 3" in ended.stdout


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"worker_prefetch_multiplier": "x"}, "worker_prefetch_multiplier='x': must be a whole"),
        ({"worker_prefetch_multiplier": -1}, "worker_prefetch_multiplier=-1: must be a whole"),
        ({"worker_concurrency": -3}, "worker_concurrency=-3: must be a whole"),
        ({"worker_eta_task_limit": "x"}, "worker_eta_task_limit='x': must be a whole number"),
        ({"task_time_limit": "x"}, "task_time_limit='x': must be a number of seconds above 0"),
        ({"task_default_queue": 5}, "names a queue 5: must be a string"),
        ({"task_queues": {"a": 5}}, "task_queues={'a': 5}: can't be used"),
        ({"task_queues": ["a"]}, "task_queues=['a']: can't be used"),
        ({"sqs_heartbeat_queues": {5: {"on_lost": "revoke"}}}, "queues[5]: must be the name of"),
    ],
)
def test_unusable_settings_of_celery_are_found(
    proxy: FaultProxy, conf: dict[str, Any], said: str
) -> None:
    findings = examine(app_at(proxy.broker_url, **conf))
    (error,) = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert error.id == "SQSHB-E001"
    assert said in str(error.value)
    # There is no finding about a value that is not set.
    assert "SQSHB-W105" not in found(findings)


@pytest.mark.parametrize("name", ["", None])
def test_an_app_without_a_queue_is_an_error(proxy: FaultProxy, name: str | None) -> None:
    app = app_at(proxy.broker_url, task_default_queue=name)
    assert "SQSHB-E217" in [finding.id for finding in examine(app)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor -Q ,", "',' has an empty name in it"),
        ("doctor -Q work,", "'work,' has an empty name in it"),
        ("doctor -c -1", "'-1' must be a whole number, 0 or more, or 'auto'"),
        ("doctor -c " + "9" * 5000, "must be a whole number, 0 or more, or 'auto'"),
        (
            "iam -Q " + "q" * 81,
            "can't be a queue's name on SQS: use 1 to 80 letters, digits, - and",
        ),
        ("iam --account 12", "'12' must be 12 digits"),
        ("iam --region nowhere", "'nowhere' must be a region's name, such as eu-west-1"),
    ],
)
def test_wrong_options_are_refused(run: Run, line: str, said: str) -> None:
    ended = run(*line.split())
    assert ended.returncode == 2
    assert said in ended.stderr.splitlines()[-1]


def test_the_concurrency_may_be_left_to_celery(run: Run) -> None:
    assert run("doctor", "-c", "auto").returncode == 0


def test_no_policy_is_made_of_wrong_transport_options(run: Run) -> None:
    options = {**OPTIONS, "predefined_queues": {"work": {}}}
    ended = run("iam", broker_transport_options=options)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "['predefined_queues']['work']: must be a dict with the queue's 'url'" in line


@pytest.mark.parametrize(("command", "status"), [("doctor", 2), ("iam", 2)])
def test_without_an_app_the_commands_ask_for_it(command: str, status: int, tmp_path: Path) -> None:
    ended = run_forked(
        [sys.executable, "-m", "celery", "sqs-heartbeat", command],
        env={**os.environ, **SAFE_ENV, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    assert ended.returncode == status
    assert "no Celery app was found" in ended.stdout + ended.stderr
    assert "celery -A proj" in " ".join((ended.stdout + ended.stderr).split())


def test_an_endpoint_that_is_down_is_tried_once(proxy: FaultProxy) -> None:
    proxy.rule("*", reset())
    urls = {name: {"url": f"{proxy.url}/1/{name}"} for name in ("a", "b")}
    app = app_at(proxy.broker_url, broker_transport_options={**OPTIONS, "predefined_queues": urls})
    findings = [f for f in examine(app, queues=["a", "b"]) if f.id == "SQSHB-E304"]
    assert [f.queue for f in findings] == ["a", "b"]
    assert len(proxy.calls()) == 1


def test_predefined_queues_are_taken_by_their_urls(
    proxy: FaultProxy, simulated: SimulatedServer
) -> None:
    url = simulated.client().get_queue_url(QueueName="work")["QueueUrl"]
    queues = {"here": {"url": url}, "gone": {"url": url.replace("work", "gone")}}
    app = app_at(
        proxy.broker_url, broker_transport_options={**OPTIONS, "predefined_queues": queues}
    )
    findings = examine(app, queues=["here", "gone", "unnamed"])
    assert [f.queue for f in findings if f.id == "SQSHB-E201"] == ["gone"]
    assert [f.queue for f in findings if f.id == "SQSHB-E215"] == ["unnamed"]
    assert [f.queue for f in findings if f.id == "SQSHB-P201"] == ["here"]
    assert proxy.calls("ListQueues") == []


def test_a_queue_has_its_prefix(proxy: FaultProxy, simulated: SimulatedServer) -> None:
    simulated.client().create_queue(QueueName="prod-work")
    options = {**OPTIONS, "queue_name_prefix": "prod-"}
    findings = examine(app_at(proxy.broker_url, broker_transport_options=options))
    assert [f.queue for f in findings if f.id == "SQSHB-W204"] == ["work"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ({"predefined_queues": {"work": {"url": "https://sqs/1/work.fifo"}}}, "['work']: its name"),
        ({"client-config": {"read_timeout": 0}}, "['read_timeout']=0: must be"),
        ({"client-config": {"nope": 1}}, "unexpected keyword argument 'nope'"),
        ({"wait_time_seconds": 50}, "['wait_time_seconds']=50: must be"),
    ],
)
def test_a_transport_option_that_a_worker_refuses_is_the_only_error(
    proxy: FaultProxy, option: dict[str, Any], value: str
) -> None:
    findings = examine(app_at(proxy.broker_url, broker_transport_options={**OPTIONS, **option}))
    (error,) = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert error.id == "SQSHB-E401"
    assert value in str(error.value)


def test_a_queue_that_the_app_does_not_have_is_a_finding(proxy: FaultProxy) -> None:
    app = app_at(proxy.broker_url, task_create_missing_queues=False)
    (finding,) = [f for f in examine(app, queues=["nope"]) if f.id == "SQSHB-E006"]
    assert finding.queue == "nope"


@pytest.mark.parametrize(
    ("ahead", "id_"), [(-3600, "SQSHB-E501"), (60, "SQSHB-W502"), (0, "SQSHB-P503")]
)
def test_the_clock_is_compared_with_sqs(proxy: FaultProxy, ahead: float, id_: str) -> None:
    now = 1_700_000_000.0

    def dated(body: Body, forward: Forward) -> Answer:
        answer = forward(body)
        return replace(answer, headers={**answer.headers, "Date": formatdate(now - ahead)})

    proxy.rule("*", dated)
    inspector = QueueInspector(Broker.of_app(app_at(proxy.broker_url)), clock=lambda: now)
    tries = inspector.inspect("work").tries
    assert len(tries) == 5
    (finding,) = check_clock([answer.skew for answer in tries.values()])
    assert finding.id == id_


def test_attributes_of_another_server_are_read(sqs_server: SqsServer) -> None:
    """Ministack returns the retention period, too."""
    name = "short-lived"
    sqs_server.client().create_queue(
        QueueName=name, Attributes={"MessageRetentionPeriod": "60", "VisibilityTimeout": "90"}
    )
    findings = examine(app_at(sqs_server.broker_url), queues=[name])
    assert (
        found(findings, "SQSHB-P301")["SQSHB-E207"]
        == "retention period 60 s, visibility timeout 90 s"
    )
    assert "sqs:DeleteMessage" in (found(findings, "SQSHB-P301")["SQSHB-P301"] or "")


def test_the_policy_has_the_arns_that_sqs_returns(run: Run) -> None:
    ended = run("iam")
    assert ended.returncode == 0, ended.stderr
    policy = json.loads(ended.stdout)
    by_sid = {each["Sid"]: each for each in policy["Statement"]}
    assert by_sid["Consume"]["Resource"] == "arn:aws:sqs:us-east-1:000000000000:work"
    assert by_sid["Find"]["Action"] == ["sqs:ListQueues"]


def test_without_sqs_the_policy_is_made_from_urls_or_options(run: Run) -> None:
    nowhere = "sqs://k:s@127.0.0.1:1"
    url = "https://sqs.eu-west-3.amazonaws.com/123456789012/work"
    options = {**OPTIONS, "predefined_queues": {"work": {"url": url}}}
    ended = run("iam", "--producer", broker=nowhere, broker_transport_options=options)
    (statement,) = json.loads(ended.stdout)["Statement"]
    assert statement["Resource"] == "arn:aws:sqs:eu-west-3:123456789012:work"
    assert statement["Action"] == ["sqs:SendMessage", "sqs:GetQueueAttributes"]

    unknown = run("iam", broker=nowhere)
    assert unknown.returncode == 2
    assert "the account of queue 'work' is not known" in unknown.stderr
    assert "--account" in unknown.stderr
    told = run("iam", "--account", "123456789012", "--region", "us-west-2", broker=nowhere)
    assert "arn:aws:sqs:us-west-2:123456789012:work" in told.stdout


@pytest.mark.parametrize("args", [("iam",), ("iam", "--producer")])
def test_another_broker_needs_no_policy(run: Run, args: tuple[str, ...]) -> None:
    ended = run(*args, broker="memory://")
    assert ended.returncode == 2
    assert "Error: the broker is not SQS: memory" in ended.stderr


def test_a_producer_makes_no_call_that_its_policy_lacks(proxy: FaultProxy) -> None:
    app = app_at(proxy.broker_url)
    with app.producer_pool.acquire() as producer:
        app.send_task("proj.add", (1, 2), producer=producer)
    app.close()
    made = {f"sqs:{call.operation}" for call in proxy.calls()}
    assert set(SEND) <= made <= {*SEND, "sqs:ListQueues", "sqs:CreateQueue"}

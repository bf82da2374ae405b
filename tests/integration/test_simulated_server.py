"""The simulated server as users run it: its command, and real workers on it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from celery import Celery

from celery_sqs_heartbeat.testing import Fault, Faults, SimulatedServer
from tests.support.clients import sqs_client
from tests.support.markdown import blocks, commands
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import ProcessWorker, launch

COMMAND = [sys.executable, "-m", "celery_sqs_heartbeat.testing.server"]
HOUR = 3600
STEP = 1200


@pytest.fixture
def command() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Returns a function that starts the server's command and returns the process and its URL."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_prints_its_url_and_serves_boto3(command: Any) -> None:
    _, url = command("--queue", "work:7:2", "--queue", "orders.fifo")
    client = sqs_client(url)
    queue_url = client.get_queue_url(QueueName="work")["QueueUrl"]
    assert queue_url.startswith(url + "/")
    told = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    assert told["VisibilityTimeout"] == "7"
    policy = json.loads(told["RedrivePolicy"])
    assert policy["maxReceiveCount"] == 2
    assert policy["deadLetterTargetArn"].endswith(":work-dead")
    assert len(client.list_queues()["QueueUrls"]) == 3
    client.send_message(QueueUrl=queue_url, MessageBody="a")
    assert client.receive_message(QueueUrl=queue_url)["Messages"][0]["Body"] == "a"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_cleanly(command: Any, number: signal.Signals) -> None:
    process, url = command()
    client = sqs_client(url)
    client.create_queue(QueueName="work")
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output, errors) == (0, "", "")


def test_the_same_seed_makes_the_same_ids(command: Any) -> None:
    def first_id(seed: str) -> str:
        _, url = command("--seed", seed, "--queue", "work")
        sent = sqs_client(url).send_message(QueueUrl=f"{url}/work", MessageBody="a")
        return str(sent["MessageId"])

    assert first_id("1") == first_id("1") != first_id("2")


def test_servers_without_a_seed_have_no_message_id_in_common(command: Any) -> None:
    """So the journals of both can be read together."""
    ids = []
    for _ in range(2):
        _, url = command("--queue", "work")
        answer = sqs_client(url).send_message(QueueUrl=f"{url}/work", MessageBody="x")
        ids.append(answer["MessageId"])
    assert ids[0] != ids[1]


def test_the_first_queues_are_made_before_the_faults_begin(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"by_operation": {"*": {"throttled": 1}}}')
    _, url = command("--queue", "work:30:5", "--faults", str(file))
    with pytest.raises(ClientError, match="Throttled"):
        sqs_client(url).send_message(QueueUrl=f"{url}/work", MessageBody="x")


def test_the_faults_file_is_read_again_when_it_changes(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"by_operation": {"ListQueues": {"denied": 1.0}}}')
    process, url = command("--faults", str(file))
    client = sqs_client(url)
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_queues()
    file.write_text("{")
    wait_until(lambda: "not JSON" in process.stderr.readline())
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_queues()
    file.write_text("{}")
    wait_until(lambda: _ask(url, "GET", "/_faults") == {"seed": 0, "by_operation": {}})
    client.list_queues()


@pytest.mark.parametrize(
    ("arguments", "content", "told"),
    [
        (["--faults", "{file}"], "{", "--faults: {file}: the faults are not JSON"),
        (["--faults", "{file}"], '{"by_operation": {"*": {"lag": 1}}}', "fault 'lag' is not known"),
        (["--faults", "{file}.gone"], "", "--faults: the faults can't be read"),
        (["--queue", "work:x"], "", "'work:x' must be NAME[:VT[:maxReceiveCount]]"),
        (["--queue", "work:43201"], "", "VT must be 0 to 43200"),
        (["--queue", "my.work"], "", "'my.work': Can only include alphanumeric characters"),
        (["--queue", "work", "--queue", "work:9"], "", "--queue work: A queue already exists"),
        (["--queue", f"{'x' * 78}:30:3"], "", "Can only include alphanumeric characters"),
        (["--host", "192.0.2.1"], "", "--host 192.0.2.1 --port 0: "),
    ],
)
def test_a_wrong_argument_is_reported_and_ends_the_command(
    tmp_path: Path, arguments: list[str], content: str, told: str
) -> None:
    file = tmp_path / "faults.json"
    file.write_text(content)
    done = subprocess.run(
        [*COMMAND, *(argument.format(file=file) for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert told.format(file=file) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_keeps_a_task_for_twelve_hours_and_not_longer(
    command: Any, tmp_path: Path
) -> None:
    _, url = command("--queue", "work")
    conf = {
        "sqs_heartbeat_visibility_timeout": 2 * HOUR,
        # The test does not move the worker's clock. Only with this threshold does the worker
        # extend all the time.
        "sqs_heartbeat_threshold": 2 * HOUR - 0.1,
        "sqs_heartbeat_interval": 0.05,
    }
    with _worker(url, "work", conf, tmp_path) as worker:
        _send(url, "work", "work", "a", HOUR)
        worker.wait_for_log("received")
        ahead = 0
        while "lease-capped" not in worker.logs():
            assert ahead < 13 * HOUR
            ahead += STEP
            _ask(url, "POST", "/_advance", {"seconds": STEP})
            _wait_for_extension(url, worker)
        assert ahead >= 10 * HOUR
        # No extension follows, and the message is visible 12 h after its receive.
        before = _extensions(url)
        _ask(url, "POST", "/_advance", {"seconds": 13 * HOUR - ahead})
        (message,) = _receive(url, "work")
        assert message["Attributes"]["ApproximateReceiveCount"] == "2"
        assert _extensions(url) == before
        assert worker.logs().count("lease-capped") == 1


def test_a_worker_notices_a_lost_lease(tmp_path: Path) -> None:
    with SimulatedServer() as server:
        server.client().create_queue(QueueName="work.fifo", Attributes={"FifoQueue": "true"})
        conf = {
            "sqs_heartbeat_visibility_timeout": 30,
            "sqs_heartbeat_threshold": 29.5,
            "sqs_heartbeat_interval": 0.1,
        }
        with _worker(server.url, "work.fifo", conf, tmp_path) as worker:
            _send(server.url, "work.fifo", "work", "a", HOUR)
            wait_until(lambda: _extensions(server.url) > 1)
            server.advance(31)
            worker.wait_for_log("lease-lost")
            (message,) = _receive(server.url, "work.fifo")
            assert message["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_worker_does_its_tasks_through_faults(tmp_path: Path) -> None:
    with SimulatedServer(
        faults=Faults(
            seed=5,
            by_operation={
                "ReceiveMessage": Fault(failed=0.2, latency=0.01, jitter=0.02),
                "ChangeMessageVisibility": Fault(lost_request=0.2, lost_answer=0.2),
                "DeleteMessage": Fault(throttled=0.2, entry_failed=0.2, lost_answer=0.2),
            },
        )
    ) as server:
        # kombu 5.5 remembers the URL of a queue's name for good: each server has its own names.
        server.client().create_queue(QueueName="faulty")
        # Leases are extended soon, with most of the timeout to spare: if one expires while the
        # machine stalls, a task may run twice.
        conf = {
            "sqs_heartbeat_visibility_timeout": 30,
            "sqs_heartbeat_threshold": 29.9,
            "sqs_heartbeat_interval": 0.05,
        }
        with _worker(server.url, "faulty", conf, tmp_path):
            for number in range(6):
                _send(server.url, "faulty", "work", str(number), 0.1)
            wait_until(lambda: not server.sqs.queue("faulty").messages)
        ledger = (tmp_path / "ledger.jsonl").read_text().splitlines()
        ended = [json.loads(line)["key"] for line in ledger if json.loads(line)["what"] == "end"]
        assert sorted(ended, key=int) == [str(number) for number in range(6)]


def test_the_tests_in_the_document_pass_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["celery_sqs_heartbeat.testing.fixtures"]\n'
    )
    snippets = blocks("docs/testing.md", "python")
    for number, snippet in enumerate(snippets):
        named = re.match(r"# (\w+\.py)\n", snippet)
        (tmp_path / (named[1] if named else f"test_{number}.py")).write_text(snippet)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    tests = len(re.findall(r"^def test_", "\n".join(snippets), re.MULTILINE))
    assert tests == 5
    assert f"{tests} passed" in done.stdout, done.stdout


def test_the_command_in_the_document_starts_a_server(command: Any, tmp_path: Path) -> None:
    (line,) = commands("docs/testing.md")
    (faults,) = blocks("docs/testing.md", "json")
    file = tmp_path / "faults.json"
    file.write_text(faults)
    arguments = line.removeprefix("python -m celery_sqs_heartbeat.testing.server ").split()
    # Its port may be in use here.
    arguments[arguments.index("--port") + 1] = "0"
    arguments[arguments.index("--faults") + 1] = str(file)
    _, url = command(*arguments)
    assert _ask(url, "GET", "/_faults") == json.loads(faults)
    assert "work-dead" in str(sqs_client(url).list_queues(QueueNamePrefix="work-dead"))


def test_only_the_fixtures_need_pytest() -> None:
    code = "import sys, celery_sqs_heartbeat.testing.server; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@contextmanager
def _worker(url: str, queue: str, conf: dict[str, Any], folder: Path) -> Iterator[ProcessWorker]:
    """Run a worker of the acceptance tests' app, one task at a time, with the heartbeat."""
    (folder / "ledger.jsonl").touch()
    worker = launch(
        "worker1",
        app="tests.acceptance.proj",
        args=["-Q", queue, "-c", "1", "--prefetch-multiplier", "1", "--heartbeat-sqs"],
        env={
            "CELERY_BROKER_URL": _broker(url),
            "PROJ_LEDGER": str(folder / "ledger.jsonl"),
            "PROJ_CONF": json.dumps({"task_default_queue": queue, **conf}),
        },
        log_dir=folder,
    )
    try:
        worker.wait_for_log("ready.")
        yield worker
    finally:
        worker.teardown()


def _send(url: str, queue: str, task: str, *args: Any) -> None:
    app = Celery("sender", broker=_broker(url))
    app.conf.broker_transport_options = {
        "region": "us-east-1",
        "is_secure": False,
        "predefined_queues": {queue: {"url": f"{url}/000000000000/{queue}"}},
    }
    with app:
        app.send_task(f"tests.acceptance.proj.{task}", args, queue=queue, routing_key=queue)


def _broker(url: str) -> str:
    return url.replace("http://", "sqs://testing:testing@")


def _receive(url: str, queue: str) -> list[dict[str, Any]]:
    answer = sqs_client(url).receive_message(
        QueueUrl=f"{url}/000000000000/{queue}", WaitTimeSeconds=5, AttributeNames=["All"]
    )
    return list(answer.get("Messages", []))


def _wait_for_extension(url: str, worker: ProcessWorker) -> None:
    """Wait until the lease has been extended again, or is capped."""
    before = _extensions(url)
    wait_until(lambda: _extensions(url) > before + 1 or "lease-capped" in worker.logs())


def _extensions(url: str) -> int:
    return int(_ask(url, "GET", "/_calls").get("ChangeMessageVisibilityBatch", 0))


def _ask(url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url + path, data, method=method), timeout=PATIENCE
    ) as answer:
        return dict(json.loads(answer.read()))

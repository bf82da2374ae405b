"""The simulated server as users run it: its command, and real workers on it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.clients import sqs_client
from tests.support.markdown import blocks, commands
from tests.support.waiting import PATIENCE, wait_until

COMMAND = [sys.executable, "-m", "celery_sqs_heartbeat.testing.server"]


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


def test_the_faults_file_is_read_again_when_it_changes(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"by_operation": {"*": {"denied": 1.0}}}')
    # The first queues are made before the faults begin.
    process, url = command("--queue", "work:30:5", "--faults", str(file))
    client = sqs_client(url)
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_queues()
    file.write_text("{")
    wait_until(lambda: "not JSON" in process.stderr.readline())
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_queues()
    file.write_text("{}")
    wait_until(lambda: _faults_of(url) == {"seed": 0, "by_operation": {}})
    assert len(client.list_queues()["QueueUrls"]) == 2


@pytest.mark.parametrize(
    ("arguments", "content", "told"),
    [
        (["--faults", "{file}"], "{", "--faults: {file}: the faults are not JSON"),
        (["--faults", "{file}"], '{"by_operation": {"*": {"lag": 1}}}', "fault 'lag' is not known"),
        (["--faults", "{file}.gone"], "", "--faults: the faults can't be read"),
        (["--queue", "work:x"], "", "'work:x' must be NAME[:VT[:maxReceiveCount]]"),
        (["--queue", "work:43201"], "", "VisibilityTimeout. Reason: Must be between 0 and 43200"),
        (["--queue", "work:30:0"], "", "valid values are from 1 to 1000"),
        (["--queue", "my.work"], "", "--queue my.work: Can only include alphanumeric characters"),
        (["--queue", "work", "--queue", "work:9"], "", "--queue work:9: A queue already exists"),
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
    assert _faults_of(url) == json.loads(faults)
    assert "work-dead" in str(sqs_client(url).list_queues(QueueNamePrefix="work-dead"))


def _faults_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/_faults", timeout=PATIENCE) as answer:
        return dict(json.loads(answer.read()))

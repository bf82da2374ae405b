"""The app of the page on LocalStack works on LocalStack, on moto, and on the simulated SQS."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.conformance.servers import test_standard
from tests.conformance.servers.target import KNOWN, LOCALSTACK, LocalStackServer
from tests.support.clients import sqs_client
from tests.support.markdown import ROOT, blocks, commands
from tests.support.servers import MotoServer, SqsServer
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE

PAGE = "docs/howto/localstack.md"
ADDRESS = "localhost:4566"
EXPORT, DOCTOR, SEND, WORKER = commands(PAGE)[-4:]


@pytest.fixture(params=["moto", "localstack", "simulated"])
def address(request: pytest.FixtureRequest, shell: Shell) -> Iterator[str]:
    """Where the page's queue is served, by the page's command if that is the package's own."""
    if request.param == "simulated":
        (serve,) = (command for command in commands(PAGE) if "testing.server" in command)
        shell.start(serve.replace("4566", "0"))
        yield re.findall(r"http://(\S+)", shell.wait_for("http://"))[0]
        return
    is_moto = request.param == "moto"
    server: SqsServer = MotoServer() if is_moto else LocalStackServer(shell.folder)
    server.start()
    attributes = {"VisibilityTimeout": "30"}
    server.client().create_queue(QueueName="celery", Attributes=attributes)
    yield server.url.removeprefix("http://")
    server.stop()


def test_the_pages_app_runs_its_task(address: str, shell: Shell) -> None:
    (source,) = blocks(PAGE, "python")
    (shell.folder / "proj.py").write_text(source)
    shell.export(EXPORT.replace(ADDRESS, address))
    # The one warning is that there is no dead-letter queue.
    warnings = 0 if _has_dead_letters(address) else 1
    assert f"0 errors, {warnings} warning" in shell.run(DOCTOR)
    shell.run(SEND)
    worker = shell.start(f"{WORKER} --concurrency 1")
    log = shell.wait_for("succeeded in")
    assert "messages of queue celery are kept: visibility timeout 30 s" in log
    assert "Traceback" not in log
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def _has_dead_letters(address: str) -> bool:
    client = sqs_client(f"http://{address}")
    url = client.get_queue_url(QueueName="celery")["QueueUrl"]
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return "RedrivePolicy" in answer["Attributes"]


def test_localstack_differs_as_the_page_says() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"LocalStack {LOCALSTACK.rpartition('.')[0]} differs from AWS" in text
    for behaviour in (
        test_standard.test_no_change_reaches_past_12_hours_after_the_receive,
        test_standard.test_a_delete_by_a_stale_handle_deletes_nothing,
    ):
        assert "localstack" in KNOWN[behaviour.__name__]

"""Every command and snippet of the README, its pages and the tutorial, run as readers run them."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from celery import Celery

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.scene import StartWorker
from tests.acceptance.test_operating import probe
from tests.support.clients import sqs_client
from tests.support.markdown import ROOT, blocks, commands, languages
from tests.support.proxy import FaultProxy
from tests.support.shell import Shell, direct_session
from tests.support.stalls import Stall, stood_still
from tests.support.waiting import PATIENCE, wait_until
from tests.support.warm.client import run_forked
from tests.support.workers import SAFE_ENV, ProcessWorker

README, INDEX, PRODUCTION = "README.md", "docs/index.md", "docs/howto/production.md"
CLONE = "git clone https://github.com/celery-sqs-heartbeat/celery-sqs-heartbeat"
INSTALL = "pip install ./celery-sqs-heartbeat"
PIPELINE = "pip install '/path/to/celery-sqs-heartbeat[pipeline]'"
WORKER = "celery -A proj worker --heartbeat-sqs --loglevel INFO"
SERVE = "python -m celery_sqs_heartbeat.testing.server --port 9324 --queue celery:30:5"
TRY = [
    "export CELERY_BROKER_URL=sqs://any:thing@127.0.0.1:9324",
    'python -c "from proj import add; add.delay(2, 2)"',
]
LOOK = [f"celery -A proj sqs-heartbeat {command}" for command in ("doctor", "status", "iam")]
REPORT, TUNE = (
    f"celery -A proj sqs-heartbeat {name} /var/log/proj/sqs" for name in ("report", "tune")
)
PROJ, SETTINGS, OPERATE = SNIPPETS = (
    *blocks(README, "python"),
    *blocks(PRODUCTION, "python"),
)
#: How often the demo is run if the machine stalls for longer than this, in seconds.
DEMO_TRIES, DEMO_STANDSTILL = 3, 1.0
Start = Callable[..., ProcessWorker]


@pytest.fixture
def start_proj(tmp_path: Path, start_worker: StartWorker, proxy: FaultProxy) -> Start:
    """Start the README's worker on the README's project."""
    client = sqs_client(proxy.upstream_url)

    def start(*snippets: str) -> ProcessWorker:
        source = "\n\n".join(snippets)
        # The reader's folder and port.
        source = source.replace("/var/log/proj/sqs", str(tmp_path / "journal"))
        (tmp_path / "proj.py").write_text(source.replace("127.0.0.1:9808", "127.0.0.1:0"))
        # The last long poll of another test's worker would still receive what is sent.
        with suppress(ClientError):
            queue_url = client.get_queue_url(QueueName="celery")["QueueUrl"]
            client.delete_queue(QueueUrl=queue_url)
        arguments = WORKER.removeprefix("celery -A proj worker ").split()
        worker = start_worker("proj", arguments, env={"PYTHONPATH": str(tmp_path)})
        worker.wait_for_log("ready.")
        return worker

    return start


def test_nothing_in_the_readme_goes_untested() -> None:
    export, send = TRY
    assert told(README) == [CLONE, INSTALL, LOOK[0], WORKER]
    assert told(INDEX) == [CLONE, INSTALL, WORKER, send, SERVE, export]
    assert told(PRODUCTION) == [*LOOK, PIPELINE, REPORT, TUNE]
    assert languages(README) == languages(INDEX) == {"console", "python"}
    assert languages(PRODUCTION) == {"console", "python", "json"}
    assert len(SNIPPETS) == 3
    assert len(blocks(PRODUCTION, "json")) == 1


def told(page: str) -> list[str]:
    """Return the commands of a page without their comments."""
    return [command.split("  #")[0].rstrip() for command in commands(page)]


def test_the_package_is_installed_by_pip(tmp_path: Path) -> None:
    command = INSTALL.replace("./celery-sqs-heartbeat", str(ROOT)).split()
    options = ["--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([sys.executable, "-m", *command, *options], check=True)
    assert (tmp_path / "celery_sqs_heartbeat" / "py.typed").exists()
    (metadata,) = tmp_path.glob("celery_sqs_heartbeat-*.dist-info/METADATA")
    assert "Name: celery-sqs-heartbeat\n" in metadata.read_text()


@pytest.mark.fresh
def test_the_worker_of_the_readme_runs_its_task_with_the_permissions_of_the_readme(
    start_proj: Start, proxy: FaultProxy
) -> None:
    worker = start_proj(PROJ)
    add = Celery("sender", broker=proxy.broker_url).signature("proj.add", (2, 2))
    add.apply_async()
    worker.wait_for_log("succeeded in")
    proxy.wait_for("DeleteMessageBatch")

    (policy,) = blocks(PRODUCTION, "json")
    allowed = {
        action.removeprefix("sqs:")
        for statement in json.loads(policy)["Statement"]
        for action in statement["Action"]
    }
    used = {call.operation.removesuffix("Batch") for call in proxy.calls()}
    assert used <= allowed


def test_without_an_aws_account_the_readmes_lines_run_its_task(shell: Shell) -> None:
    (shell.folder / "proj.py").write_text(PROJ)
    shell.start(SERVE.replace("9324", "0"))
    address = re.findall(r"http://(\S+)", shell.wait_for("http://"))[0]
    export, send = TRY
    shell.export(export.replace("127.0.0.1:9324", address))
    shell.run(send)
    worker = shell.start(f"{WORKER} --concurrency 1")
    log = shell.wait_for("succeeded in")
    assert "Traceback" not in log
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def test_the_settings_of_the_readme_are_accepted(start_proj: Start) -> None:
    worker = start_proj(PROJ, SETTINGS)
    worker.wait_for_log(
        "messages of queue celery are kept: visibility timeout 30 s (set), extended when less "
        "than 10 s are left, for 43195 s at most"
    )


@pytest.fixture
def run_command(tmp_path: Path, proxy: FaultProxy) -> Callable[[str], str]:
    """Run a command of the README on its project, and return what it wrote."""
    env = {**os.environ, **SAFE_ENV, "CELERY_BROKER_URL": proxy.broker_url}

    def run(command: str) -> str:
        words = command.split()
        shown = run_forked([sys.executable, "-m", *words], env=env, cwd=tmp_path)
        assert shown.returncode == 0, shown.stdout + shown.stderr
        return shown.stdout

    return run


def test_the_commands_of_the_readme_look_at_its_worker(
    start_proj: Start, run_command: Callable[[str], str]
) -> None:
    worker = start_proj(PROJ, OPERATE)
    # Of the keeper's process, which is ready after the worker or before it.
    worker.wait_for_log("status page at http://")
    (page,) = re.findall(r"status page at (http://\S+)/", worker.logs())
    wait_until(lambda: probe(worker, "/readyz")[0] == 200)
    doctor, status, iam = LOOK
    assert "0 errors" in run_command(doctor)
    assert "worker1@localhost" in run_command(f"{status} --url {page}")
    assert "sqs:ChangeMessageVisibility" in json.loads(run_command(iam))["Statement"][0]["Action"]
    assert "--heartbeat-sqs / --no-heartbeat-sqs" in run_command("celery -A proj worker --help")


def test_make_demo_shows_no_duplicate_and_no_loss_under_the_heartbeat(
    stalls: Sequence[Stall],
) -> None:
    assert "`make demo`" in (ROOT / README).read_text()
    # All that it needs is installed here. No test installs anything in its own environment.
    stamp = f"{sys.prefix}/demo.stamp"
    command = ["make", "demo", f"VENV={sys.prefix}", f"--old-file={stamp}"]
    for _ in range(DEMO_TRIES):
        began = time.monotonic()
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        # Its leases last three seconds: a machine that stalls for one second may lose some.
        stood = stood_still(stalls, began, time.monotonic())
        if shown.returncode == 0 or stood < DEMO_STANDSTILL:
            break
    assert shown.returncode == 0, shown.stdout + shown.stderr
    rows = _table(shown.stdout)
    assert rows["tasks sent"] == ["8", "8"]
    assert int(rows["avoidable"][0]) > 0
    assert rows["avoidable"][1] == rows["tasks lost"][1] == "0"
    # The tests of failing tasks show which is shorter. A pause here may reverse the order.
    assert all(float(mean) >= 0 for mean in rows["seconds from failure to next start"])
    page = ROOT / "build" / "demo-report.html"
    assert f"Wrote {page}" in shown.stdout
    told = page.read_text()
    assert all(task in told for task in ("demo.proj.archive", "demo.proj.flaky"))


def _table(output: str) -> dict[str, Any]:
    lines = [line.split("│") for line in output.splitlines() if line.startswith("│")]
    return {cells[1].strip(): [cell.strip() for cell in cells[2:4]] for cells in lines}


LAMBDA, HEROKU = "docs/howto/lambda.md", "docs/howto/heroku.md"


def test_a_lambda_function_sends_a_task_that_a_worker_runs(shell: Shell) -> None:
    (shell.folder / "function.py").write_text(blocks(LAMBDA, "python")[0])
    (shell.folder / "proj.py").write_text(blocks("README.md", "python")[0])
    (invoke,) = (block for block in blocks(LAMBDA, "console") if "--payload" in block)
    event = re.findall(r"--payload '(.+)'", invoke)[0]
    with SimulatedServer() as server, direct_session() as session:
        url = server.client().create_queue(QueueName="celery")["QueueUrl"]
        shell.export(f"export AWS_REGION=us-east-1 QUEUE_URL={url}")
        shell.export(f"export CELERY_BROKER_URL={server.broker_url}")
        before = session.get(f"{server.url}/_calls").json()
        answer = json.loads(
            shell.run(
                "python -c 'import json; from function import handler; "
                f"print(json.dumps(handler({event}, None)))'"
            )
        )
        calls = session.get(f"{server.url}/_calls").json()
        called = {name for name, count in calls.items() if count > before.get(name, 0)}
        (policy,) = re.findall(r"`(celery .+ --producer)`", (ROOT / LAMBDA).read_text())
        (statement, *_) = json.loads(shell.run(policy))["Statement"]
        assert {f"sqs:{name}" for name in called} <= set(statement["Action"])

        # What a function with an event source mapping would get.
        client = server.client()
        (message,) = client.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
        envelope = json.loads(base64.b64decode(message["Body"], validate=True))
        assert envelope["headers"]["task"] == "proj.add"

        worker = shell.start("celery -A proj worker --heartbeat-sqs -c 1 --loglevel INFO")
        log = shell.wait_for(" succeeded in")
        assert f"proj.add[{answer['task_id']}] received" in log
        assert f"proj.add[{answer['task_id']}] succeeded" in log
        worker.terminate()
        assert worker.wait(PATIENCE) == 0


TUTORIAL = "docs/tutorial.md"
#: Longer than any patience: a message that is visible sooner was released.
TIMEOUT = 600


def test_the_tutorial_is_true(shell: Shell) -> None:
    steps = iter(commands(TUTORIAL))
    assert [next(steps) for _ in range(3)][2] == "pip install /path/to/celery-sqs-heartbeat"
    told, received_again = blocks(TUTORIAL, "text")

    server = next(steps)
    assert "--port 9324 --queue celery:10:3" in server
    server = server.replace("--port 9324", "--port 0").replace(":10:", f":{TIMEOUT}:")
    shell.start(server)
    url = re.findall(r"http://\S+", shell.wait_for("http://"))[0]
    (source,) = blocks(TUTORIAL, "python")
    assert "127.0.0.1:9324" in source
    assert "time.sleep(25)" in source
    source = source.replace("127.0.0.1:9324", url.removeprefix("http://"))
    source = source.replace("time.sleep(25)", "_wait(cake)")
    (shell.folder / "proj.py").write_text(source + WAIT)

    # With a timeout of 10 s it has the warning that the page names.
    doctor = next(steps)
    assert doctor == "celery -A proj sqs-heartbeat doctor"
    assert "0 errors" in shell.run(doctor)

    start = next(steps)
    worker = shell.start(start)
    log = shell.wait_for(" ready.")
    # The same line as for a timeout of 10 s, except for its numbers.
    numbers = re.compile(r"[\d.]+ s")
    assert numbers.sub("", told.strip()) in numbers.sub("", log)
    shell.run(next(steps))
    shell.wait_for("apple cake: into the oven, receive 1")
    (shell.folder / "apple cake").touch()
    shell.wait_for("apple cake: done")

    shell.run(next(steps))
    shell.wait_for("plum cake: into the oven, receive 1")
    shell.run(next(steps))
    assert worker.wait(PATIENCE) == -signal.SIGKILL
    assert next(steps) == start
    (shell.folder / "plum cake").touch()
    worker = shell.start(start)
    shell.wait_for("plum cake: done")
    runs = re.findall(r"plum cake: into the oven, receive \d", shell.log.read_text())
    assert runs[-1] in (received_again.strip(), "plum cake: into the oven, receive 2")
    assert len(runs) == 2

    shell.run(next(steps))
    shell.wait_for("cheese cake: into the oven, receive 1")
    shell.run(next(steps))
    shell.wait_for("Warm shutdown")
    (shell.folder / "cheese cake").touch()
    assert worker.wait(PATIENCE) == 0
    shell.wait_for("cheese cake: done")

    assert next(steps) == start
    shell.start(start)
    shell.wait_for(" ready.", 3)
    shell.run(next(steps))
    shell.wait_for("pancake: burnt, receive 3")
    count = next(steps)
    printed = blocks(TUTORIAL, "console")[-1].removeprefix(f"$ {count}\n")
    wait_until(lambda: shell.run(count) == printed)
    assert shell.log.read_text().count("pancake: burnt") == 3
    assert list(steps) == []


WAIT = """

def _wait(cake):
    while not __import__("os").path.exists(cake):
        time.sleep(0.02)
"""

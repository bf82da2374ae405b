"""What the pages on platforms promise of a worker, where no platform is needed to show it."""

from __future__ import annotations

import base64
import json
import re
import signal
from contextlib import suppress
from typing import Any

import psutil

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.support.markdown import ROOT, blocks, commands
from tests.support.shell import Shell, direct_session
from tests.support.waiting import PATIENCE, wait_until

LAMBDA, HEROKU = "docs/howto/lambda.md", "docs/howto/heroku.md"
COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]


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


def test_a_dyno_that_stops_finishes_its_task(shell: Shell) -> None:
    source = blocks(HEROKU, "python")[0]
    # The reader's bucket and port.
    source = re.sub(r"    sqs_heartbeat_(journal|status)=.*\n", "", source)
    # On a busy machine, the task may need more than 10 s to notice that it may end.
    source, changed = re.subn("(worker_soft_shutdown_timeout=)10", r"\g<1>30", source)
    assert changed == 1
    (shell.folder / "proj.py").write_text(source + HOLD)
    (procfile,) = blocks(HEROKU, "text")
    (remap,) = (line for line in commands(HEROKU) if "REMAP_SIGTERM" in line)
    with SimulatedServer() as server:
        client = server.client()
        attributes = {"VisibilityTimeout": "600"}
        url = client.create_queue(QueueName="celery", Attributes=attributes)["QueueUrl"]
        shell.export(f"export CELERY_BROKER_URL={server.broker_url}")
        shell.export(remap.replace("heroku config:set", "export"))
        shell.run("python -c 'from proj import hold; hold.delay()'")
        worker = shell.start(procfile.removeprefix("worker: ").strip())
        shell.wait_for("holding")
        main = psutil.Process(worker.pid)
        for process in [main, *main.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        shell.wait_for("Initiating Soft Shutdown")
        (shell.folder / "go").touch()
        assert worker.wait(PATIENCE) == 0
        assert "succeeded in" in shell.log.read_text()
        wait_until(lambda: _messages(client, url) == 0)


HOLD = """

@app.task
def hold():
    import pathlib, time
    print("holding", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


def _messages(client: Any, url: str) -> int:
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=COUNTS)
    return sum(int(count) for count in answer["Attributes"].values())

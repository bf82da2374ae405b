"""A FIFO queue, as in its how-to: workers with several processes keep each group's order."""

from __future__ import annotations

from pathlib import Path

from celery import Celery

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.acceptance.scene import StartWorker
from tests.support.markdown import commands
from tests.support.waiting import wait_until

QUEUE = "orders.fifo"
GROUPS = ("a", "b", "c")
EACH = 4
WORKER = "celery -A proj worker "
PROJ = """
import os, time
from celery import Celery
from celery_sqs_heartbeat import install

app = install(Celery("proj", broker=os.environ["CELERY_BROKER_URL"]))
app.conf.update(
    broker_transport_options={"is_secure": False, "wait_time_seconds": 1},
    task_acks_late=True,
    task_default_queue="orders.fifo",
    task_ignore_result=True,
)

def note(line):
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(line + "\\n")

@app.task
def step(group, number):
    note(f"{group} start {number}")
    time.sleep(0.1)
    note(f"{group} end {number}")
"""


def test_workers_of_several_processes_keep_the_order_of_each_group(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    (line,) = commands("docs/howto/fifo.md")
    assert line.startswith(WORKER)
    (tmp_path / "proj.py").write_text(PROJ)
    ledger = tmp_path / "ledger"
    ledger.touch()
    with SimulatedServer() as server:
        server.client().create_queue(
            QueueName=QUEUE, Attributes={"FifoQueue": "true", "VisibilityTimeout": "600"}
        )
        sender = Celery("sender", broker=server.broker_url)
        sender.conf.broker_transport_options = {"is_secure": False}
        for number in range(EACH):
            for group in GROUPS:
                sender.send_task("proj.step", (group, number), queue=QUEUE, MessageGroupId=group)
        for _ in range(2):
            start_worker(
                "proj",
                line.removeprefix(WORKER).split(),
                env={
                    "CELERY_BROKER_URL": server.broker_url,
                    "LEDGER": str(ledger),
                    "PYTHONPATH": str(tmp_path),
                },
            )
        wait_until(lambda: ledger.read_text().count("end") == EACH * len(GROUPS))
    lines = ledger.read_text().splitlines()
    for group in GROUPS:
        seen = [line.removeprefix(f"{group} ") for line in lines if line.startswith(group)]
        assert seen == [f"{what} {n}" for n in range(EACH) for what in ("start", "end")]

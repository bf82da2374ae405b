"""The programs and handlers that the documents show do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kombu.transport import SQS

from celery_sqs_heartbeat import LeaseLost, NoLease
from celery_sqs_heartbeat.common.clock import now
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from celery_sqs_heartbeat.leases.policy import longest_wait
from celery_sqs_heartbeat.observe.catalogue import COUNTED
from celery_sqs_heartbeat.testing import SimulatedServer
from tests.support.clients import sqs_client
from tests.support.leases import lease_of, share_board
from tests.support.markdown import ROOT, blocks
from tests.support.tasks import run_in_task, run_task, sqs_message
from tests.support.waiting import PATIENCE

#: How the snippets of the page on plain consumers are run. The last one ends by itself.
CONSUMERS = [
    "",
    "consume()",
    "asyncio.run(consume_soon())",
    """
import boto3
from celery_sqs_heartbeat import LeaseKeeper

sqs = boto3.client("sqs", region_name="us-east-1")
with LeaseKeeper(visibility_timeout=30, region_name="us-east-1") as keeper:
    consume_once(keeper, sqs, sqs.get_queue_url(QueueName="work")["QueueUrl"])
""",
]
PROCESS = """
def process(body):
    print(body, flush=True)
"""


@pytest.mark.parametrize(
    "number",
    [
        0,
        *(pytest.param(number, marks=pytest.mark.thorough) for number in (1, 2)),
        len(CONSUMERS) - 1,
    ],
)
def test_a_plain_consumer_of_the_page_processes_a_message_and_ends_at_a_signal(
    number: int, tmp_path: Path
) -> None:
    snippets = blocks("docs/plain-consumer.md", "python")
    assert len(snippets) == len(CONSUMERS)
    program = tmp_path / "consumer.py"
    program.write_text(
        "\n".join([PROCESS if number else "", snippets[number], CONSUMERS[number]]),
        encoding="utf-8",
    )
    with SimulatedServer() as server:
        client = sqs_client(server.url)
        url = client.create_queue(QueueName="work")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="hello")
        keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
        with subprocess.Popen(
            [sys.executable, str(program)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **keys, "AWS_ENDPOINT_URL_SQS": server.url},
        ) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "hello\n"
            if number < len(CONSUMERS) - 1:
                consumer.terminate()
            assert consumer.wait(PATIENCE) == 0
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        assert set(left.values()) == {"0"}


def test_a_task_with_a_lost_lease_stops_before_it_pays() -> None:
    paid: list[str] = []

    def pay(invoice: str, idempotency_key: str = "none") -> None:
        paid.append(f"{invoice} {idempotency_key}")

    names: dict[str, Any] = {"prepare": "invoice for {}".format, "pay": pay}
    for snippet in blocks("docs/current-lease.md", "python"):
        exec(snippet, names)
    charge, pay_safely = names["charge"], names["pay_safely"]
    message, lease = sqs_message("a", message_id="m"), lease_of("a", expires_at=now() + 3_600)
    board = share_board(1)
    board.show(lease)
    run_task(charge, ["x"], message)
    run_in_task(lambda: pay_safely("y"), message)
    assert paid == ["invoice for x m", "y none"]

    lease.status = LeaseStatus.LOST
    board.show(lease)
    with pytest.raises(LeaseLost):
        run_task(charge, ["x"], message)
    with pytest.raises(LeaseLost):
        run_in_task(lambda: pay_safely("y"), message)
    assert len(paid) == 2

    unshare_table()
    with pytest.raises(NoLease):
        run_task(charge, ["x"], message)
    pay_safely("z")
    assert paid[2:] == ["z none"]


def test_the_numbers_and_names_of_the_pages_on_leases_and_metrics_are_those_of_the_code() -> None:
    lease = " ".join((ROOT / "docs" / "current-lease.md").read_text(encoding="utf-8").split())
    wait = SQS.Channel.default_wait_time_seconds
    least = 30 - longest_wait(wait, visibility_timeout=30, threshold=10)
    assert f"up to `wait_time_seconds` ({wait} unless set)" in lease
    assert f"timeout of 30 s, `remaining()` begins between {least} and 30 s" in lease

    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    (late,) = (part for part in metrics.split("\n\n") if part.startswith("The counters of a q"))
    counters = {each.series for each in COUNTED if each.kind == "counter" and not each.zeros}
    assert _series(late) == counters
    folder = ROOT / "celery_sqs_heartbeat" / "observe" / "grafana"
    (group,) = yaml.safe_load((folder / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    row = r"^\| `(SqsHeartbeat\w+)` \| (\w+) \| ([^|]+) \| [^|]+ \|$"
    for rule, shown in zip(group["rules"], re.findall(row, metrics, re.M), strict=True):
        assert (rule["alert"], rule["labels"]["severity"]) == shown[:2]
        series = {re.sub("_(bucket|count)$", "", each) for each in _series(rule["expr"])}
        assert series == _series(shown[2])
        if rule["alert"] == "SqsHeartbeatLeasesLost":
            assert f"`{rule['expr']}`" in metrics
    steps = ["sqs-heartbeat grafana --out", "rule_files:\n", "promtool check config"]
    assert sorted(steps, key=metrics.index) == steps


def _series(text: str) -> set[str]:
    return set(re.findall(r"\bsqs_heartbeat_\w+", text))


def test_the_handler_of_lost_leases_gets_the_arguments_that_it_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (snippet,) = blocks("docs/settings.md", "python")
    names: dict[str, Any] = {}
    exec(snippet, names)
    told = {
        "message_id": "m",
        "queue": "https://sqs/1/q",
        "task": "report",
        "task_id": "t",
        "held_for": 61.0,
    }
    for signal, cause in (("lease_lost", "expired"), ("lease_capped", "capped")):
        names[signal].send(sender=None, cause=cause, **told)
    assert (
        capsys.readouterr().out == "report[t]: expired after 61 s\nreport[t]: capped after 61 s\n"
    )

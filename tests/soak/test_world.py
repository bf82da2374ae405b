"""What the audit relies on: the promised delays, what a worker's log and its calls record."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.sqs.clients import short_config
from celery_sqs_heartbeat.testing import SimulatedServer
from tests.soak.fleet import writes_indefinitely
from tests.soak.link import Link
from tests.soak.member import unrepeated_messages
from tests.soak.records import DELETE, Call
from tests.soak.table import PAUSE_PART, call_patience, client_patience

SOAK = Path(__file__).parent
ROOT = SOAK.parents[1]
PRODUCT = "celery_sqs_heartbeat"
#: Modules that may name the product because they make the world that is audited: the workers' app
#: and the simulated SQS.
WORLD = {"proj.py", "driver.py"}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("leases", "never exceeds an eighth of the time that the lease has left"),
        ("keeper", "timeouts are three tenths of the threshold, 0.5 to 5 s"),
        ("keeper", "gives up a call after a third of its smallest threshold, 0.6 to 20 s"),
        ("keeper", "releases the messages that the worker held, within two seconds"),
        ("keeper", "the worker starts another within a second"),
        ("keeper", "activity for a second is killed, and replaced within another second"),
        ("keeper", "A keeper that has only started gets three"),
        ("keeper", "With visibility timeouts of 5 seconds and more, no lease is lost"),
        ("keeper", "0.5 s after a second death, then 1, 2, 5, 10 and 30 s"),
    ],
)
def test_the_documents_state_the_numbers(document: str, sentence: str) -> None:
    text = (ROOT / "docs" / "internals" / f"{document}.md").read_text()
    assert sentence in " ".join(text.split())


@pytest.mark.parametrize("threshold", [0.3, 0.5, 1.0, 4 / 3, 5 / 3, 2.0, 10.0, 30.0, 60.0, 100.0])
def test_the_product_keeps_to_the_numbers(threshold: float) -> None:
    assert policy.call_patience(threshold) == pytest.approx(call_patience(threshold))
    assert short_config(threshold).read_timeout == pytest.approx(client_patience(threshold))
    for attempts in (1, 3, 20):
        pause = policy.retry_delay(attempts, margin=threshold, throttled=True, jitter=1.0)
        assert pause <= threshold * PAUSE_PART


def test_an_audit_takes_nothing_from_the_product() -> None:
    code = "import sys, tests.soak.audit, tests.soak.report; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if name.startswith(PRODUCT)] == []
    modules = [path for path in SOAK.glob("*.py") if not path.name.startswith("test_")]
    assert {path.name for path in modules if PRODUCT in path.read_text()} == WORLD


def test_a_hang_is_celerys_deadlock_only_if_it_waits_for_a_job_that_it_was_writing() -> None:
    wrote = '  File "celery/concurrency/asynpool.py", line 993, in _write_job\n    Hw += send()\n'
    waits = '  File "celery/concurrency/asynpool.py", line 384, in on_stop_not_started\n'
    assert writes_indefinitely(f"{wrote}{waits}")
    # In another order, or in another thread.
    assert not writes_indefinitely(f"{waits}{wrote}")
    assert not writes_indefinitely(f"{wrote}=====\n{waits}")


def test_the_delete_of_a_message_that_has_become_anothers_is_recorded_as_refused() -> None:
    calls: list[Call] = []
    with SimulatedServer() as server, Link("a", server.url, calls).proxy as proxy:
        client = proxy.client()
        url = client.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for group in ("g", "h"):
            client.send_message(
                QueueUrl=url,
                MessageBody="eyJoZWFkZXJzIjoge319",
                MessageGroupId=group,
                MessageDeduplicationId=group,
            )
        receive = functools.partial(
            client.receive_message, QueueUrl=url, MessageSystemAttributeNames=["All"]
        )
        received = receive(MaxNumberOfMessages=10)["Messages"]
        stale, ours = (message["ReceiptHandle"] for message in received)
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=stale, VisibilityTimeout=0)
        receive()
        entries = [{"Id": f"e{n}", "ReceiptHandle": each} for n, each in enumerate((stale, ours))]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
    (call,) = (call for call in calls if call.operation == DELETE)
    assert [(entry.done, entry.refused) for entry in call.entries] == [(False, True), (True, False)]


@pytest.mark.parametrize("stops_group", [True, False])
@pytest.mark.parametrize(
    ("causes", "was_to_be_released"),
    [
        (["failed", "worker died", "shutdown", "undeliverable"], True),
        (["kept", "arrived late", "not settled"], False),
    ],
)
def test_a_log_line_identifies_a_release_that_is_not_tried_again(
    causes: list[str],
    *,
    was_to_be_released: bool,
    stops_group: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for cause in causes:
        event = Event(
            kind=EventKind.MESSAGE_LAPSING,
            at=0.0,
            queue_url="http://127.0.0.1:1/1/q.fifo",
            message_id="a1-b2",
            task="work",
            task_id="t",
            receive_count=1,
            slack=1.0,
            cause=cause,
            group="g" if stops_group else None,
            stops_group=stops_group,
        )
        with caplog.at_level(logging.DEBUG):
            log_event(event)
    expected = ["a1-b2"] * len(causes) if was_to_be_released else []
    assert unrepeated_messages(caplog.text) == expected

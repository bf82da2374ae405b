"""What the audit relies on: the promised delays, what a worker's log and its calls record."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.bootsteps import CLOSE, RUN
from celery.exceptions import WorkerShutdown
from celery.signals import task_received
from celery.worker import state
from celery.worker.consumer import Consumer

from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.sqs.clients import short_config
from celery_sqs_heartbeat.testing import SimulatedServer
from tests.soak import fleet, proj
from tests.soak.fleet import SETTLING_SECONDS, is_settled, patience_ends, writes_indefinitely
from tests.soak.link import Link
from tests.soak.member import unrepeated_messages
from tests.soak.records import DELETE, Call, Harm
from tests.soak.table import PAUSE_PART, call_patience, client_patience

SOAK = Path(__file__).parent
ROOT = SOAK.parents[1]
PRODUCT = "celery_sqs_heartbeat"
#: Modules that may name the product because they make the world that is audited: the workers' app,
#: the simulated SQS, and the intruder in the journal.
WORLD = {"proj.py", "driver.py", "chaos.py"}


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
def test_the_product_waits_for_answers_as_promised(threshold: float) -> None:
    assert policy.call_patience(threshold) == pytest.approx(call_patience(threshold))
    assert short_config(threshold).read_timeout == pytest.approx(client_patience(threshold))


@pytest.mark.parametrize("margin", [0.5, 2.0, 6.0, 30.0])
def test_the_product_repeats_extensions_as_soon_as_promised(margin: float) -> None:
    for attempts in (1, 3, 20):
        pause = policy.retry_delay(attempts, margin=margin, throttled=True, jitter=1.0)
        assert pause <= margin * PAUSE_PART


def test_an_audit_takes_nothing_from_the_product() -> None:
    code = "import sys, tests.soak.audit, tests.soak.report; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if name.startswith(PRODUCT)] == []
    modules = [path for path in SOAK.glob("*.py") if not path.name.startswith("test_")]
    assert {path.name for path in modules if PRODUCT in path.read_text()} == WORLD


HANDLER = """\
  File "celery/apps/worker.py", line 343, in _handle_request
    callback(worker)
"""
WAITING = '  File "celery/concurrency/asynpool.py", line 384, in on_stop_not_started\n'
WRITING = """\
  File "celery/concurrency/asynpool.py", line 993, in _write_job
    Hw += send(header, Hw)
"""


@pytest.mark.parametrize(
    ("log", "is_deadlock"),
    [
        (WRITING + HANDLER + WAITING, True),
        (HANDLER + WAITING, False),
        (WRITING + HANDLER, False),
        (WAITING + HANDLER + WRITING, False),
        # In another thread.
        (WRITING + "=====\n" + WAITING, False),
    ],
)
def test_a_hang_is_celerys_deadlock_only_if_it_waits_for_a_job_that_it_was_writing(
    log: str, is_deadlock: bool
) -> None:
    assert writes_indefinitely(log) is is_deadlock


def test_a_worker_gets_extra_time_for_periods_in_which_it_could_not_exit() -> None:
    harms = [("pause", 3.0), ("cut off", 5.0), ("break", 7.0)]
    member: Any = SimpleNamespace(
        asked_to_exit_at=100.0,
        harms=[Harm(what=what, worker="w", at=90.0, until=90.0 + lasts) for what, lasts in harms],
    )
    assert patience_ends(member) == 168.0


@pytest.mark.parametrize(("ago", "is_late"), [(0.0, False), (SETTLING_SECONDS, True)])
def test_a_worker_is_settled_once_its_pool_has_ended_or_is_late(
    ago: float, *, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SimpleNamespace(ended=time.monotonic() - ago)
    member: Any = SimpleNamespace(info=info, process=SimpleNamespace(pid=1))
    monkeypatch.setattr(fleet, "left_of", lambda group: [2])
    assert is_settled(member) is is_late
    monkeypatch.setattr(fleet, "left_of", lambda group: [])
    assert is_settled(member)


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
    ("cause", "was_to_be_released"),
    [
        ("failed", True),
        ("worker died", True),
        ("shutdown", True),
        ("undeliverable", True),
        ("kept", False),
        ("arrived late", False),
        ("not settled", False),
    ],
)
def test_a_log_line_identifies_a_release_that_is_not_tried_again(
    cause: str, *, was_to_be_released: bool, stops_group: bool, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert unrepeated_messages(caplog.text) == (["a1-b2"] if was_to_be_released else [])


class Conf(dict[str, bool]):
    """Settings that are read as items and as attributes."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("shuts_down", [False, True])
def test_a_lost_connection_is_recorded_before_celery_waits_for_its_pool(
    monkeypatch: pytest.MonkeyPatch, *, shuts_down: bool
) -> None:
    done: list[object] = []
    monkeypatch.setattr(proj, "write", done.append)
    error = OSError("lost")

    def lose(_parent: object) -> None:
        if shuts_down:
            monkeypatch.setattr(state, "should_stop", 0)
        raise error

    def end(*_: object) -> None:
        blueprint.state = CLOSE

    blueprint = SimpleNamespace(state=RUN, start=lose, restart=end)
    conf = Conf(broker_connection_retry=True, broker_channel_error_retry=False)
    consumer: Any = SimpleNamespace(
        blueprint=blueprint,
        restart_count=0,
        app=SimpleNamespace(conf=conf),
        connection=object(),
        connection_errors=(OSError,),
        channel_errors=(),
        hub=None,
        steps=[],
        first_connection_attempt=False,
        _get_connection_retry_type=lambda is_first: "broker_connection_retry",
        _cancel_connection_timer_entries=lambda: None,
        on_connection_error_after_connected=done.append,
        on_close=lambda: None,
    )
    proj.WritesDisconnects(consumer)
    if shuts_down:
        with pytest.raises(WorkerShutdown):
            Consumer.start(consumer)
        assert done == ["disconnect"]
    else:
        Consumer.start(consumer)
        assert done == ["disconnect", error]


def test_a_message_is_recorded_when_celery_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(proj, "write", lambda what, **more: done.append((what, more)))
    message = {"MessageId": "m", "Attributes": {"ApproximateReceiveCount": "2"}}
    delivered = SimpleNamespace(delivery_info={"sqs_message": message})
    task_received.send(sender=None, request=SimpleNamespace(id="t", message=delivered))
    assert done == [("arrive", {"key": "t", "message_id": "m", "count": 2})]

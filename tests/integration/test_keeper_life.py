"""The life of a keeper in its own process, as its consumer sees it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import psutil
import pytest

from celery_sqs_heartbeat import BotoSqs, LeaseKeeper, LeaseTerms
from celery_sqs_heartbeat.consumer import process_keeper
from celery_sqs_heartbeat.errors import SqsHeartbeatError
from celery_sqs_heartbeat.leases.health import KeeperHealth
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.link import attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.testing.faults import Fault, Faults
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from tests.support.waiting import PATIENCE, wait_until

#: A visibility timeout in seconds that no test outlasts, however long its keepers take to start.
LONG = 600


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the keys of the server's clients, for the keeper's process."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer() as served:
        yield served


def children_of_mine() -> list[int]:
    return [
        child.pid
        for child in psutil.Process().children()
        if "celery_sqs_heartbeat.keeper" in child.cmdline()
    ]


class Consumer:
    """A queue of a simulated server, and a keeper in its own process."""

    def __init__(self, server: SimulatedServer, **options: Any) -> None:
        self.client = server.client()
        self.url = str(self.client.create_queue(QueueName="work")["QueueUrl"])
        # The lease is extended after a second.
        terms = LeaseTerms(visibility_timeout=LONG, threshold=LONG - 1)
        self.keeper = LeaseKeeper(BotoSqs(self.client), terms=terms, process=True, **options)

    def receive(self) -> dict[str, Any]:
        self.client.send_message(QueueUrl=self.url, MessageBody="a")
        (message,) = self.client.receive_message(
            QueueUrl=self.url, VisibilityTimeout=LONG, WaitTimeSeconds=5
        )["Messages"]
        return dict(message)

    def left(self) -> list[str]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return [answer["Attributes"][name] for name in names]


def test_a_life_with_a_process(server: SimulatedServer) -> None:
    events: list[tuple[str, str]] = []
    consumer = Consumer(
        server,
        observer=lambda event: events.append((event.kind.value, threading.current_thread().name)),
    )
    keeper = consumer.keeper
    assert not keeper.is_alive
    assert keeper.health == KeeperHealth()
    keeper.start()
    keeper.start()
    assert keeper.is_alive
    first, second = consumer.receive(), consumer.receive()
    handle = first["ReceiptHandle"]
    # Without arguments, the keeper's own terms, time and visibility timeout apply.
    assert keeper.receive(consumer.url, second) is ReceivedAs.NEW
    with keeper.hold(consumer.url, first) as lease:
        assert lease.message_id == first["MessageId"]
        assert len(keeper) == 2
        assert keeper.confirm(handle, PATIENCE)
        assert keeper.owns(handle)
        assert not keeper.is_lost(handle)
        assert keeper.find(handle) is lease
        assert {view.message_id for view in keeper.snapshot()} == {
            first["MessageId"],
            second["MessageId"],
        }
    assert keeper.release(second["ReceiptHandle"])
    assert keeper.flush(PATIENCE)
    assert keeper.ending == len(keeper) == 0
    wait_until(lambda: keeper.health.last_tick_age is not None)
    keeper.stop()
    keeper.stop()
    assert not keeper.is_alive
    assert consumer.left() == ["1", "0"]
    kinds = {kind for kind, _ in events}
    assert {"message-received", "task-started", "lease-extended", "message-deleted"} <= kinds
    assert {thread for _, thread in events} == {"sqs-heartbeat-link"}


def test_a_keeper_can_be_started_again_and_a_failing_observer_does_no_harm(
    server: SimulatedServer,
) -> None:
    def fail(event: object) -> None:
        raise RuntimeError

    consumer = Consumer(server, observer=fail)
    for _ in range(2):
        held = consumer.receive()
        assert consumer.keeper.receive(consumer.url, held) is ReceivedAs.NEW
        consumer.keeper.start()
        with consumer.keeper.hold(consumer.url, consumer.receive()):
            pass
        assert consumer.keeper.flush(PATIENCE)
        consumer.keeper.stop()
        # The keeper lets the leases that it still held expire.
        assert len(consumer.keeper) == 0
        assert consumer.keeper.find(held["ReceiptHandle"]) is None
    assert consumer.left() == ["0", "2"]


def test_a_keeper_whose_process_had_to_be_killed_can_be_started_again_at_once(
    server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendant, "_END_SECONDS", 0.0)
    consumer = Consumer(server)
    consumer.keeper.start()
    with consumer.keeper.hold(consumer.url, consumer.receive()):
        pass
    assert consumer.keeper.flush(PATIENCE)
    (keeper,) = children_of_mine()
    os.kill(keeper, signal.SIGSTOP)
    consumer.keeper.stop(0.0)
    consumer.keeper.start()
    # The thread that listened to the previous process has ended, whatever it did last.
    wait_until(
        lambda: sum(each.name == "sqs-heartbeat-link" for each in threading.enumerate()) == 1
    )
    with consumer.keeper.hold(consumer.url, consumer.receive()):
        pass
    assert consumer.keeper.flush(PATIENCE)
    assert consumer.left() == ["0", "0"]
    consumer.keeper.stop()


def test_a_keeper_without_memory_for_a_new_start_raises_and_starts_once_there_is_memory(
    server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise SqsHeartbeatError("no memory")

    consumer = Consumer(server)
    consumer.keeper.start()
    with monkeypatch.context() as without_memory:
        without_memory.setattr(process_keeper, "new_table_file", refuse)
        consumer.keeper.stop()
        with pytest.raises(SqsHeartbeatError, match="no memory"):
            consumer.keeper.start()
        assert not consumer.keeper.is_alive
    consumer.keeper.start()
    with consumer.keeper.hold(consumer.url, consumer.receive()):
        pass
    assert consumer.keeper.flush(PATIENCE)
    assert consumer.left() == ["0", "0"]
    consumer.keeper.stop()


def test_a_flush_that_a_stop_interrupts_does_not_count_abandoned_deletes_as_confirmed(
    server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(server)
    consumer.keeper.start()
    message = consumer.receive()
    consumer.keeper.receive(consumer.url, message)
    server.faults = Faults(by_operation={"DeleteMessage": Fault(failed=1.0)})
    consumer.keeper.done(message["ReceiptHandle"])
    is_flushing = threading.Event()
    say = LinkedKeeper.say

    def note_flush(self: LinkedKeeper, *said: Any) -> None:
        say(self, *said)
        if said == ("hurry",):
            is_flushing.set()

    monkeypatch.setattr(LinkedKeeper, "say", note_flush)
    flushed: list[bool] = []
    flushing = threading.Thread(target=lambda: flushed.append(consumer.keeper.flush(3)))
    flushing.start()
    assert is_flushing.wait(PATIENCE)
    consumer.keeper.stop(0.5)
    flushing.join()
    assert flushed == [False]


def test_the_keepers_log_lines_go_through_the_consumers_logging(
    server: SimulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="celery_sqs_heartbeat")
    consumer = Consumer(server)
    consumer.keeper.start()
    with consumer.keeper.hold(consumer.url, consumer.receive()):
        pass
    consumer.keeper.stop(PATIENCE)
    assert "sqs-heartbeat: message-deleted: message" in caplog.text


def test_an_observer_replaces_the_log_lines_of_events(
    server: SimulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="celery_sqs_heartbeat")
    consumer = Consumer(server, observer=lambda event: None)
    consumer.keeper.start()
    with consumer.keeper.hold(consumer.url, consumer.receive()):
        pass
    consumer.keeper.stop(PATIENCE)
    assert "message-deleted" not in caplog.text


def test_an_incomplete_flush_logs_the_unconfirmed_delete(
    server: SimulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(server)
    consumer.keeper.start()
    wait_until(lambda: consumer.keeper.health.last_tick_age is not None)
    message = consumer.receive()
    consumer.keeper.receive(consumer.url, message)
    assert consumer.keeper.confirm(message["ReceiptHandle"], PATIENCE)
    server.faults = Faults(by_operation={"DeleteMessage": Fault(failed=1.0)})
    consumer.keeper.done(message["ReceiptHandle"])
    assert not consumer.keeper.flush(0.2)
    wait_until(lambda: f"the delete of message {message['MessageId']}" in caplog.text)
    consumer.keeper.stop(0.2)


def test_a_process_is_not_killed_while_its_flush_takes_long(
    server: SimulatedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the process may take longer to exit.
    monkeypatch.setattr(attendant, "_END_SECONDS", PATIENCE)
    consumer = Consumer(server)
    consumer.keeper.start()
    message = consumer.receive()
    consumer.keeper.receive(consumer.url, message)
    assert consumer.keeper.confirm(message["ReceiptHandle"], PATIENCE)
    server.faults = Faults(by_operation={"DeleteMessage": Fault(failed=1.0)})
    consumer.keeper.done(message["ReceiptHandle"])
    consumer.keeper.stop(4)
    assert "within 4 s" in caplog.text
    assert "the keeper's process" not in caplog.text


def in_child(check: Callable[[], bool]) -> int:
    """Return the exit status of a forked child: 0 if the check holds there."""
    child = os.fork()
    if child == 0:
        threading.Timer(PATIENCE, os._exit, (2,)).start()
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_does_nothing(server: SimulatedServer) -> None:
    consumer = Consumer(server)
    keeper, message = consumer.keeper, consumer.receive()
    handle = message["ReceiptHandle"]
    keeper.start()
    keeper.receive(consumer.url, message)
    keeper.done("unknown")

    def check() -> bool:
        keeper.start()
        keeper.stop()
        assert keeper.flush(PATIENCE)
        assert keeper.health == KeeperHealth()
        assert not keeper.is_alive
        assert keeper.receive(consumer.url, {**message, "MessageId": "b"}) is ReceivedAs.NEW
        assert keeper.done(handle)
        assert keeper.release(handle)
        assert keeper.owns(handle)
        assert keeper.confirm(handle, PATIENCE)
        assert not keeper.is_lost(handle)
        assert keeper.find(handle) is None
        assert keeper.snapshot() == ()
        try:
            with keeper.hold(consumer.url, message):
                return False
        except SqsHeartbeatError:
            return True

    assert in_child(check) == 0
    assert keeper.is_alive
    assert len(keeper) == 1
    assert keeper.confirm(handle, PATIENCE)
    keeper.stop()

"""The end of a keeper's process: it has time to flush, and is replaced if it dies meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from celery_sqs_heartbeat.current.sharing import (
    VARIABLE,
    share_table,
    shared_descriptor,
    unshare_table,
)
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.link import attendant as attending
from celery_sqs_heartbeat.link import child
from celery_sqs_heartbeat.link.attendant import Attendant
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import LineReader, Wire
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import Hello, reach
from celery_sqs_heartbeat.sqs.clients import BrokerConfig
from tests.support.leases import lease_of
from tests.support.waiting import PATIENCE, wait_until

#: The log line about a keeper that ends too early.
REPLACED = "another starts"
#: A keeper without a sign of life counts as hanging after so many seconds, which are more than a
#: stall of the machine. It may take longer to start.
HANG_SECONDS, START_SECONDS = 6.0, 30.0
#: Longer than that.
FLUSH_SECONDS = 10.0


@dataclass
class Side:
    """A worker's side of its keeper. Nothing answers calls about its queue."""

    silent: socket.socket
    held: HeldMessages = field(init=False)
    keeper: LinkedKeeper = field(init=False)
    attendant: Attendant = field(init=False)

    def __post_init__(self) -> None:
        table = share_table(8)
        self.held = HeldMessages(table)
        ours, self.theirs = delivery_sockets()
        self.keeper = LinkedKeeper(self.held, Inlet(ours.detach()))
        self.attendant = Attendant(
            self.keeper,
            hello=Hello(pid=os.getpid()),
            table=table,
            descriptors=(self.theirs.fileno(), shared_descriptor()),
            on_event=lambda event: None,
        )
        url = f"http://127.0.0.1:{self.silent.getsockname()[1]}"
        config = BrokerConfig(
            endpoint_url=url, region="us-east-1", use_ssl=False, access_key="k", secret_key="s"
        )
        self.queue_url = f"{url}/1/q"
        self.keeper.order(*reach(config, self.queue_url, 10.0, url))

    def begin(self) -> None:
        """Start a working keeper, with a message whose delete SQS does not accept."""
        lease = lease_of("m", queue_url=self.queue_url, expires_at=self.keeper.now() + 30)
        self.held.add(lease, {})
        self.keeper.done("m")
        self.attendant.begin()
        self.attendant.start()
        wait_until(lambda: bool(self.attendant.stats))

    def close(self) -> None:
        self.keeper.close_inlet()
        self.theirs.close()


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    monkeypatch.delenv(VARIABLE, raising=False)
    for name in ("_LOOKS", "_BUSY_LOOKS"):
        monkeypatch.setattr(child, name, HANG_SECONDS / child.LOOK_SECONDS)
    monkeypatch.setattr(child, "_START_LOOKS", START_SECONDS / child.LOOK_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        side = Side(silent)
        yield side
        side.close()
    unshare_table()


def test_a_keeper_that_flushes_for_longer_than_the_limit_does_not_hang(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.begin()
    side.attendant.stop(FLUSH_SECONDS)
    assert REPLACED not in caplog.text
    assert side.keeper.ending == 1


def test_a_keeper_that_is_killed_while_it_flushes_has_a_successor_that_flushes(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.begin()
    first = side.attendant.pid
    stopping = threading.Thread(target=side.attendant.stop, args=(FLUSH_SECONDS,))
    stopping.start()
    time.sleep(0.3)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    stopping.join()
    assert caplog.text.count(REPLACED) == 1
    assert side.attendant.pid != first


def test_a_new_keeper_gets_all_leases_before_it_is_to_end() -> None:
    held = HeldMessages(Table(bytearray(Table.size_for(16))))
    deliveries = delivery_sockets()
    keeper = LinkedKeeper(held, Inlet(deliveries[0].detach()))
    keeper.order("stop", 5.0)
    keeper.order("pool", [1])
    held.add(lease_of("m"), {})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        keeper.attach(Wire(os.dup(ours.fileno())), [("hello",)])
        kinds = [message[0] for message in LineReader().feed(theirs.recv(1 << 18))]
        keeper.detach()
    keeper.close_inlet()
    deliveries[1].close()
    assert kinds == ["hello", "pool", "resume", "stop"]


def test_a_keeper_that_has_finished_exits_at_once_regardless_of_atexit_handlers(
    side: Side,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = f"import atexit, time\natexit.register(time.sleep, {2 * PATIENCE})\n"
    monkeypatch.setattr(child, "_RUN", code + child._RUN)
    monkeypatch.setattr(attending, "_END_SECONDS", PATIENCE)
    side.attendant.begin()
    side.attendant.start()
    side.attendant.stop(FLUSH_SECONDS)
    assert REPLACED not in caplog.text
    assert "did not exit in time" not in caplog.text

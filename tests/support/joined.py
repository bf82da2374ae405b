"""A worker's end and its keeper's in one process, joined by a link that delivers at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from queue import Empty, SimpleQueue
from typing import Any

from celery_sqs_heartbeat.current.table import LeaseBoard, Table
from celery_sqs_heartbeat.keeper.dispatch import ThreadDispatcher
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.link.child import LOOK_SECONDS
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.link.deliveries import Inlet, Outlet, delivery_sockets
from celery_sqs_heartbeat.link.frames import Message, write
from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.link.messages import read_config
from celery_sqs_heartbeat.link.serving import KeeperEnd, LinkedLeases
from celery_sqs_heartbeat.receiving.reception import MessageSender, Reception
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import ClientPool
from tests.support.linked import Queue, take_report
from tests.support.waiting import wait_until

#: Places in the table: more than the leases of any test.
PLACES = 4_096


class PollClients(ClientPool):
    """Makes the clients of polls.

    Attributes:
        prepare: Is called for each poll, before there is a client, on the poll's thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.prepare: Callable[[], object] = bool

    def __call__(self, queue_url: str) -> Any:
        self.prepare()
        return super().__call__(queue_url)


class _Wire(Queue):
    """Passes each message on to the keeper's end, at its flush."""

    def __init__(self, take: Callable[[list[Any]], object]) -> None:
        super().__init__()
        self._take = take

    def flush(self) -> bool:
        while self.messages:
            self._take(self.messages.popleft())
        return True


class Joined:
    """A keeper, and what its worker calls.

    What the worker says, its keeper's end does before the call returns. What the keeper reports
    arrives on another thread, as from an attendant.

    Args:
        most_waiting: How many messages may wait for another of their group.
        concurrency: How many tasks the worker runs at once; 0 if not known.
        poll_clients: Returns the client for the polls of a queue at a URL.
        dispatcher: Makes the keeper's calls. Then its user steps the keeper, and calls `hear`.

    Attributes:
        worker: What the transport and the requests call.
        keeper: The keeper behind it.
        clients: Those of the calls.
        poll_clients: Those of the polls.
    """

    def __init__(
        self,
        *,
        most_waiting: int = 100,
        concurrency: int = 0,
        poll_clients: Any = None,
        dispatcher: ThreadDispatcher | None = None,
    ) -> None:
        self.clients, self.poll_clients = ClientPool(), poll_clients or PollClients()
        sqs = BotoSqs(self.clients, self.poll_clients, self.clients.address)
        self._table = Table(mmap(-1, Table.size_for(PLACES)))
        ours, theirs = delivery_sockets()
        inlet = Inlet(ours.detach())
        self._is_stepped = dispatcher is not None
        self._outlet = Outlet(theirs.detach(), 1)
        self._said: SimpleQueue[Message | None] = SimpleQueue()
        leases = LinkedLeases(LeaseBoard(self._table), self._outlet, self._said.put)
        self.keeper = ThreadKeeper(
            sqs,
            board=leases,
            observers=[self._observe],
            dispatcher=dispatcher,
        )
        sender = MessageSender(self.keeper, sqs.send_message, self._run)
        self.reception = Reception(
            self.keeper,
            sqs=sqs,
            sender=sender,
            deliver=leases.deliver,
            keep=leases.keep,
            most_waiting=most_waiting,
            concurrency=concurrency,
        )
        self._end = KeeperEnd(
            self.keeper,
            leases,
            self._said.put,
            self.reception,
            wants_all=False,
        )
        self.worker = LinkedKeeper(HeldMessages(self._table), inlet)
        # The keeper is ready.
        self._table.tick = 1.0
        self._run(self._read_rooms)
        if not self._is_stepped:
            self.keeper.start()
            self._run(self._hear_all)
        self.worker.attach(_Wire(self._take), ())  # type: ignore[arg-type]

    def close(self) -> None:
        """Receive no more, and end the threads."""
        self.reception.end()
        self.reception.join()
        self.worker.close_inlet()
        self._said.put(None)
        self.keeper.stop(0)

    def look(self) -> None:
        """Do what the keeper does at each tick."""
        self.reception.look()

    def join(self) -> None:
        """Wait until no poll is open."""
        wait_until(lambda: not self.reception.polls)

    def hear(self) -> None:
        """Have the worker know what the keeper has reported so far."""
        self.worker.pull()
        while not self._said.empty():
            if (said := self._said.get()) is not None:
                self._take_report(said)

    def _run(self, job: Callable[[], object]) -> None:
        threading.Thread(target=job, daemon=True).start()

    def _take(self, message: list[Any]) -> None:
        match message:
            case ["reach", queue_url, threshold, address, config]:
                read = read_config(config)
                self.clients.use(read, queue_url, threshold, address=address)
                self.poll_clients.use(read, address, None)
            case _:
                assert self._end.take(message), message

    def _observe(self, event: Event) -> None:
        log_event(event)
        self._end.report(event)

    def _read_rooms(self) -> None:
        while self._outlet.read_rooms(self.reception.allow):
            pass
        self._outlet._socket.close()

    def _hear_all(self) -> None:
        is_over = False
        while not is_over:
            self.worker.push()
            with suppress(Empty):
                said = self._said.get(timeout=LOOK_SECONDS)
                is_over = said is None
                if said is not None:
                    self.worker.pull()
                    self._take_report(said)

    def _take_report(self, said: Message) -> None:
        take_report(self.worker, json.loads(write(said)))

"""A worker on a bench: its channel, its keeper and their link, and a simulated pool."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.utils.log import get_logger
from kombu import Connection, Consumer, Queue

from celery_sqs_heartbeat.keeper.dispatch import ApplyResults
from celery_sqs_heartbeat.leases.events import Call
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.sqs.sending import CallGivenUp
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from celery_sqs_heartbeat.worker.shutdown import end_polls, release_unstarted
from tests.support.insides import slots_taken
from tests.support.joined import Joined
from tests.support.waiting import PATIENCE

logger = get_logger(__name__)

#: How often to check whether every poll waits, in seconds. There are thousands of them.
_LOOK_SECONDS = 0.0005


class OpenPoll:
    """A receive that waits, on its own thread, until the bench answers it.

    Attributes:
        asked: Its call.
        since: When it was made, in seconds.
    """

    def __init__(self, asked: dict[str, Any], since: float) -> None:
        self.asked = asked
        self.since = since
        self._answer: Future[dict[str, Any]] = Future()

    def answer(self, answer: dict[str, Any]) -> None:
        self._answer.set_result(answer)

    def refuse(self) -> None:
        """Let it not be sent, because the worker ends."""
        self._answer.set_exception(CallGivenUp())

    def wait(self) -> dict[str, Any]:
        return self._answer.result(PATIENCE)


class _Client:
    """A client whose receives wait for the bench."""

    def __init__(self, sqs: SimulatedSqs, receive: Callable[..., dict[str, Any]]) -> None:
        self._sqs = sqs
        self.receive_message = receive

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._sqs, operation)


class _PollClients:
    """Returns that client for each queue."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def use(self, *_: Any) -> None:
        """Do nothing: the client reaches every queue."""

    def __call__(self, queue_url: str) -> _Client:
        return self._client


class _Request:
    """What Celery's request does at the end of a task."""

    acknowledged = False
    time_start = None

    def __init__(self, message: Any) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message
        self.id = self.name = str(message.headers["id"])
        self.task = SimpleNamespace(acks_late=True, Strategy="celery.worker.strategy:default")
        self.request_dict: dict[str, Any] = {}

    def acknowledge(self) -> None:
        if not self.acknowledged:
            self.message.ack_log_error(logger, ())
            self.acknowledged = True

    def reject(self, requeue: bool = False) -> None:
        if not self.acknowledged:
            self.message.reject_log_error(logger, (), requeue)
            self.acknowledged = True

    def on_failure(self, exc_info: ExceptionInfo) -> None:
        self.reject()


class Request(LeasedRequest, _Request):
    """The request of a leased message, whose name is its id."""


class TaskFailed(Exception):
    """The error of a task that must fail."""


class _Calls:
    """Makes no call. Keeps each until the bench takes it."""

    def __init__(self) -> None:
        self.out: list[tuple[Call, ApplyResults]] = []

    def dispatch(self, call: Call, settle: ApplyResults) -> None:
        self.out.append((call, settle))

    def give_up(self, call: Call) -> bool:
        del call
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Worker:
    """Receives messages through the package's own channel, with a keeper behind a link.

    Args:
        urls: Of its queues, by name.
        read: Reads a queue's attributes.
        processes: How many tasks it runs at once.
        prefetch: How many messages Celery may have.

    Attributes:
        waiting: The requests that no process has taken.
        running: Those whose tasks run, by name.
        is_receiving: Whether its receives return messages.
        refuse: The error that its consumer raises, by the message's name.
    """

    def __init__(
        self,
        *,
        clock: FakeClock,
        sqs: SimulatedSqs,
        urls: dict[str, str],
        read: Callable[[str], Any],
        settings: Settings,
        processes: int,
        prefetch: int,
        options: dict[str, Any],
    ) -> None:
        self._clock = clock
        self.processes = processes
        self.is_receiving = True
        self.waiting: list[Request] = []
        self.running: dict[str, Request] = {}
        self.refuse: dict[str, Exception] = {}
        self._calls = _Calls()
        self._open: list[OpenPoll] = []
        client = _Client(sqs, self._poll)
        self.joined = Joined(
            most_waiting=settings.fifo_waiting,
            clock=clock,
            poll_clients=_PollClients(client),
            dispatcher=self._calls,
            jitter=lambda: 1.0,
        )
        self.heartbeat = Heartbeat(
            keeper=self.joined.worker,
            settings=settings,
            queues=QueueDirectory(read, lambda job: job(), clock),
            clients=self.joined.clients,
            leases=prefetch,
        )
        bind(self.heartbeat)
        queues = {name: {"url": url} for name, url in urls.items()}
        self._connection = Connection(
            "sqs://key:secret@",
            transport=Transport,
            transport_options={"predefined_queues": queues, "polling_interval": 0, **options},
        )
        self.channel = self._connection.channel()
        # Sends messages.
        self.channel.sqs = lambda queue=None: client
        self.channel.qos.restore_at_shutdown = False
        self.channel.basic_qos(0, prefetch, False)
        self._consumer = Consumer(
            self.channel,
            [Queue(name, channel=self.channel) for name in urls],
            on_message=self._take,
            auto_declare=False,
        )
        self._consumer.consume()

    def step(self) -> list[tuple[Call, ApplyResults]]:
        """Let its keeper do what is due. Return the calls that it makes."""
        self.joined.hear()
        self.joined.keeper.step()
        calls, self._calls.out = self._calls.out, []
        return calls

    def receive(self, answer: Callable[[OpenPoll], dict[str, Any] | None]) -> None:
        """Answer the polls that are open, and deliver the messages of the answers.

        Args:
            answer: Returns the answer to a poll, or None to let it wait.
        """
        bind(self.heartbeat)
        self._deliver()
        self.heartbeat.look()
        self.joined.look()
        for poll in self._open_polls():
            if self.heartbeat.is_ending:
                poll.refuse()
            elif (received := answer(poll)) is not None:
                poll.answer(received)
            else:
                continue
            self._open.remove(poll)
            self._open_polls()
            self._deliver()

    def _open_polls(self) -> list[OpenPoll]:
        """Return the open polls when every poll of a thread waits for its answer."""
        self.joined.settle()
        until = time.monotonic() + PATIENCE
        while len(self._open) != len(self.joined.reception.polls):
            assert time.monotonic() < until
            time.sleep(_LOOK_SECONDS)
        return list(self._open)

    def _poll(self, **asked: Any) -> dict[str, Any]:
        poll = OpenPoll(asked, self._clock())
        self._open.append(poll)
        return poll.wait()

    def _deliver(self) -> None:
        self.joined.hear()
        with contextlib.suppress(socket.timeout, OSError):
            while True:
                self._connection.drain_events(timeout=0)

    def take_next(self) -> Request | None:
        """Return the next request for a free process, or None."""
        bind(self.heartbeat)
        while self.waiting and len(self.running) < self.processes:
            request = self.waiting.pop(0)
            if not request.is_not_ours():
                request.begin()
                self.running[request.id] = request
                return request
        return None

    def end_task(self, request: Request, error: BaseException | None) -> None:
        """End a task, with success or an error."""
        bind(self.heartbeat)
        del self.running[request.id]
        if error is None:
            request.acknowledge()
            return
        try:
            raise error
        except type(error):
            request.on_failure(ExceptionInfo())

    def held(self) -> set[str]:
        """Return the ids of the messages that its keeper still has."""
        return {lease.message_id for lease in self.joined.keeper.leases()}

    def waiting_for_their_group(self) -> int:
        """Return how many messages its keeper has that wait for another of their group."""
        return len(self.joined.reception._waitlist)

    def slots_taken(self) -> set[str]:
        """Return the handles that count against its prefetch limit."""
        return slots_taken(self.channel)

    def shut_down(self) -> None:
        """Begin a warm shutdown: running tasks continue."""
        bind(self.heartbeat)
        end_polls(self.heartbeat)
        release_unstarted(self.heartbeat, None)

    def lose_connection(self) -> None:
        """Lose the connection without another one: running tasks continue."""
        bind(self.heartbeat)
        self.channel.qos.restore_at_shutdown = True
        self.channel.close()
        self.waiting.clear()

    def close(self) -> None:
        """Leave nothing behind, without a call."""
        self.channel.feed.stop()
        for poll in self._open_polls():
            poll.refuse()
        self._connection.release()
        self.joined.close()
        bind(None)

    def _take(self, message: Any) -> None:
        name = str(message.headers["id"])
        if name in self.refuse:
            raise self.refuse[name]
        self.waiting.append(Request(message))

"""A worker's channel and Celery's own requests, in this process, without HTTP.

The keeper is at the other end of a link that delivers when the test says so. The pool keeps its
jobs, and the test runs them.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.concurrency.base import BasePool
from celery.worker.request import create_request_cls
from kombu import Connection, Consumer, Queue

from celery_sqs_heartbeat.leases.lease import Goal, LeaseStatus
from celery_sqs_heartbeat.leases.message import Arrived
from celery_sqs_heartbeat.link.serving import is_about_leases
from celery_sqs_heartbeat.link.watching import wait_readable
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.clients import ClientPool
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.transport import Transport
from celery_sqs_heartbeat.transport.binding import Heartbeat, bind
from celery_sqs_heartbeat.worker.pools import follow_jobs, guard_run
from celery_sqs_heartbeat.worker.requests import use_leased_requests
from tests.support.insides import give_to_pool, job_of_process, slots_taken
from tests.support.linked import Linked

#: The timeout with which each message is received, in seconds.
HIDDEN = 30
ATTRIBUTES = QueueAttributes(visibility_timeout=HIDDEN)


def url_of(queue: str) -> str:
    return f"https://sqs.us-east-1.amazonaws.com/1/{queue}"


def body_of(task_id: str, **headers: Any) -> str:
    """Return the body of a task's message."""
    content = {"task": "work", "id": task_id, **headers}
    properties = {"delivery_info": {}, "delivery_tag": "", "body_encoding": "base64"}
    sent = {"body": "W1tdLCB7fSwge31d", "headers": content, "properties": properties}
    return json.dumps({**sent, "content-type": "application/json", "content-encoding": "utf-8"})


def _work() -> None: ...


class Pool(BasePool):  # type: ignore[misc]
    """A pool of processes, threads or greenlets, which starts nothing by itself.

    Attributes:
        jobs: What it was given: a job of a process or None, the target, and the callbacks.
        stopped: The processes or greenlets that it was to stop. Threads can't be stopped.
        error: Is raised when it is given a job.
    """

    def __init__(self, *, has_processes: bool, is_green: bool = False) -> None:
        super().__init__(1)
        self.uses_semaphore, self.is_green = has_processes, is_green
        self.jobs: list[SimpleNamespace] = []
        self.stopped: list[int] = []
        self.error: Exception | None = None

    def on_apply(self, target: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        made = job_of_process(accepted=False, write_to=None) if self.uses_semaphore else None
        job = SimpleNamespace(job=made, run=functools.partial(target, *(args or ())), **options)
        self.jobs.append(job)
        return made

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        if not (self.uses_semaphore or self.is_green):
            raise NotImplementedError
        self.stopped.append(pid)


class Scene:
    """A worker that consumes from one queue.

    Args:
        settings: Those of the heartbeat, without their prefix.
        task: Options of the task.

    Attributes:
        attributes: Those of its queue.
        now: The time by which the known ones become old, in seconds.
        got: The requests of the messages that were delivered, by message id.
        sqs: What kombu itself would call.
        trace: Runs a task in the pool, as Celery's function of that name does.
    """

    def __init__(
        self,
        *,
        queue: str = "q",
        attributes: QueueAttributes = ATTRIBUTES,
        has_processes: bool = True,
        is_green: bool = False,
        prefetch: int = 10,
        task: dict[str, Any] | None = None,
        clock: FakeClock | None = None,
        **settings: Any,
    ) -> None:
        self.queue, self.attributes, self.now = queue, attributes, 0.0
        self.linked = Linked(0.0, clock=clock)
        self.keeper = self.linked.worker
        conf = {f"sqs_heartbeat_{name}": value for name, value in settings.items()}
        own = (task or {}).get("sqs_heartbeat")
        tasks = {} if own is None else {"work": own}
        self.heartbeat = Heartbeat(
            keeper=self.keeper,
            settings=read_settings(conf.get, tasks=tasks),
            queues=QueueDirectory(
                lambda url: self.attributes, lambda job: job(), clock=lambda: self.now
            ),
            clients=ClientPool(),
            leases=prefetch,
        )
        self.heartbeat.has_processes, self.heartbeat.is_green = has_processes, is_green
        self.pool = Pool(has_processes=has_processes, is_green=is_green)
        self.app = Celery("scene", set_as_current=False, backend="cache+memory://")
        options = {"acks_late": True, "shared": False, **(task or {})}
        self.task = self.app.task(name="work", **options)(_work)
        self.app.finalize()
        bind(self.heartbeat)
        use_leased_requests(self.app)
        guard_run(self.pool)
        follow_jobs(self.pool)
        self.got: dict[str, Any] = {}
        self.trace: Callable[..., object] = lambda *args: (0, None, 0.1)
        self.connection = Connection(
            "sqs://k:s@",
            transport=Transport,
            transport_options={"predefined_queues": {queue: {"url": url_of(queue)}}},
        )
        self.channel = self.connection.channel()
        self.sqs = Mock()
        self.channel.sqs = lambda queue=None: self.sqs
        self.channel.basic_qos(0, prefetch, False)
        self.consumer = self.consume(self.take)

    def consume(self, on_message: Callable[[Any], object]) -> Consumer:
        queue = Queue(self.queue, channel=self.channel)
        consumer = Consumer(self.channel, [queue], on_message=on_message, auto_declare=False)
        consumer.consume()
        self.channel.feed.consume()
        return consumer

    def take(self, message: Any) -> None:
        leased = self.app.tasks["work"].Request
        trace = lambda *args: self.trace(*args)  # noqa: E731
        made = create_request_cls(leased, self.task, self.pool, "here", None, trace=trace)
        self.got[str(message.headers["id"])] = made(
            message,
            on_ack=message.ack_log_error,
            on_reject=message.reject_log_error,
            app=self.app,
            task=self.task,
        )

    def arrive(
        self,
        *ids: str,
        count: int = 1,
        group: str | None = None,
        handle: str | None = None,
        body: str | None = None,
        **headers: Any,
    ) -> None:
        """Have the keeper receive messages, and hand them over."""
        self.tell()
        for each in ids:
            attributes = {"ApproximateReceiveCount": str(count)}
            if group is not None:
                attributes |= {"MessageGroupId": group, "SequenceNumber": "1"}
            message = {"MessageId": each, "ReceiptHandle": handle or each, "Attributes": attributes}
            message["Body"] = body or body_of(each, **headers)
            self._hand_over(message)

    def tell(self) -> None:
        """Have the keeper know what the worker has said about its messages."""
        inbox = self.linked.elsewhere.inbox.messages
        about_leases = [each for each in inbox if is_about_leases(each)]
        inbox.clear()
        inbox.extend(about_leases)
        self.linked.deliver()

    def _hand_over(self, message: dict[str, Any]) -> None:
        elsewhere, url = self.linked.elsewhere, url_of(self.queue)
        terms = self.heartbeat.leased.of(self.queue, HIDDEN, "work")
        elsewhere.keeper.receive(
            url,
            message,
            terms=terms,
            hidden_for=HIDDEN,
            sent_at=self.keeper.now(),
            max_receive_count=self.attributes.max_receive_count,
            task="work",
            task_id=message["MessageId"],
        )
        lease = elsewhere.keeper.find(message["ReceiptHandle"])
        assert lease is not None
        elsewhere.waiting.append(Arrived(queue=self.queue, message=message, lease=lease))
        elsewhere.deliver()
        self.keeper.pull()

    def deliver(self, *ids: str, **received: Any) -> Any:
        """Receive messages and deliver what has arrived. Return the request of the last one."""
        self.arrive(*ids, **received)
        with contextlib.suppress(TimeoutError):
            self.connection.drain_events(timeout=0.0)
        return self.got.get(ids[-1]) if ids else None

    def start(self, *ids: str, **received: Any) -> Any:
        """Do the same, and give the tasks to the pool."""
        last = self.deliver(*ids, **received)
        for each in ids:
            give_to_pool(self.got[each], self.pool)
        return last

    def run(self, message_id: str, **received: Any) -> Any:
        """Do the same, and have a process accept the task. Return its job."""
        self.start(message_id, **received)
        job = self.pool.jobs[-1]
        job.accept_callback(4711, 0.0)
        return job

    def fate(self, message_id: str) -> str:
        """Return what the worker has said about a message."""
        lease = self.keeper.find(message_id)
        if lease is None:
            return "disowned" if self.keeper.is_disowned(message_id) else "let expire"
        if lease.goal is Goal.RELEASE:
            return f"released {lease.release_delay} {lease.cause}"
        return "held" if lease.goal is Goal.HOLD else "deleted"

    def set_status(self, message_id: str, status: LeaseStatus) -> None:
        """Have the keeper show that a lease has this status."""
        keeper = self.linked.elsewhere.keeper
        lease = keeper.find(message_id)
        assert lease is not None
        lease.status = status
        if status is LeaseStatus.EXPIRED:
            lease.expires_at = keeper.now()
        keeper.change(lambda book, _: book.show(lease))

    def rooms(self, do: Callable[[], object]) -> list[int]:
        """Do something. Return for how many more messages there was room, each time it was said."""
        said, allow = list[int](), self.keeper.allow
        self.keeper.allow = lambda channel, room: said.append(room()[0])
        do()
        self.keeper.allow = allow
        return said

    def is_woken(self) -> bool:
        """Return whether the consumer's thread was woken since the last call."""
        arrivals = self.connection.transport.arrived
        is_woken = wait_readable([arrivals._sockets[0].fileno()], 0)
        arrivals.wait(0)
        return bool(is_woken)

    @property
    def slots(self) -> set[str]:
        """The messages that count against the prefetch limit."""
        return slots_taken(self.channel)

    def close(self) -> None:
        self.heartbeat.keeper.detach()
        bind(None)
        self.connection.release()


@pytest.fixture
def new_scene() -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(**options: Any) -> Scene:
        scenes.append(Scene(**options))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(new_scene: Callable[..., Scene]) -> Scene:
    return new_scene()

"""A queue, the tasks sent to it, and what happened to them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from celery import Celery

from tests.acceptance.lateness import late_extensions
from tests.support.proxy import FaultProxy
from tests.support.recording import Call
from tests.support.stalls import Stall
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workers import ProcessWorker

#: The module with the orders that a worker may take.
ORDERS = "tests.acceptance.orders"
VISIBILITY_TIMEOUT = 4
#: Longer than a test waits: a message becomes visible again only when it is released.
LONG = {"VisibilityTimeout": "600"}
#: For a worker whose leases are extended every two seconds and outlast most standstills...
STEADY = {"VisibilityTimeout": "20"}
#: ... with these settings.
OFTEN = {"sqs_heartbeat_threshold": 18}
#: A queue and settings for tasks that last for more than two of its timeouts. A slow keeper has ten
#: seconds for an extension.
SHORT, EARLY = {"VisibilityTimeout": "12"}, {"sqs_heartbeat_threshold": 10.5}


class StartWorker(Protocol):
    """Starts a worker that ends with the test."""

    def __call__(
        self,
        app: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> ProcessWorker:
        """Start `celery -A app worker *args`.

        Args:
            app: Module of the Celery app, importable from the repository's root.
            args: Further arguments of the worker.
            env: Environment variables on top of this process's; `CELERY_BROKER_URL` is
                the proxy unless set here.
        """


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the ledger. `at` in monotonic seconds."""

    what: str
    key: str
    at: float
    pid: int


@dataclass
class Scene:
    """One queue with a visibility timeout of 4 s and the workers on it."""

    proxy: FaultProxy
    start_worker: StartWorker
    folder: Path
    stalls: Sequence[Stall]
    max_receive_count: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_fifo: bool = False

    def __post_init__(self) -> None:
        self.name = f"q-{uuid.uuid4().hex[:12]}" + (".fifo" if self.is_fifo else "")
        self.ledger = self.folder / f"{self.name}.jsonl"
        self.ledger.touch()
        self.client = self.proxy.client()
        kind = {"FifoQueue": "true"} if self.is_fifo else {}
        attributes = {"VisibilityTimeout": str(VISIBILITY_TIMEOUT), **kind, **self.attributes}
        if self.max_receive_count is not None:
            self.dead_letters = self._create(f"dead-{self.name}", kind)
            arn = self._attribute(self.dead_letters, "QueueArn")
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": arn, "maxReceiveCount": self.max_receive_count}
            )
        self.url = self._create(self.name, attributes)
        self.app = Celery("sender", broker=self.proxy.broker_url)
        self.app.conf.broker_transport_options = {
            "region": "us-east-1",
            "is_secure": False,
            "predefined_queues": {self.name: {"url": self.url}},
        }

    def worker(
        self,
        *args: str,
        flag: bool = True,
        orders: bool = False,
        conf: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> ProcessWorker:
        """Start a worker on the queue and wait until it is ready.

        Args:
            orders: Whether it takes orders, for which it needs an event loop.
        """
        given = {"task_default_queue": self.name, **(conf or {})}
        if orders:
            given["imports"] = [ORDERS]
        worker = self.start_worker(
            "tests.acceptance.proj",
            ["-Q", self.name, *(["--heartbeat-sqs"] if flag else []), *args],
            env={
                "PROJ_LEDGER": str(self.ledger),
                "PROJ_CONF": json.dumps(given),
                **(env or {}),
            },
        )
        if wait:
            worker.wait_for_log("ready.")
        return worker

    def send(self, task: str, *args: Any, **options: Any) -> None:
        """Send a task of `tests.acceptance.proj` by its short name."""
        self.app.send_task(
            f"tests.acceptance.proj.{task}", args, queue=self.name, routing_key=self.name, **options
        )

    def let_end(self, key: str) -> None:
        """Let a task `hold` end."""
        self.ledger.with_name(f"{self.ledger.name}.{key}").touch()

    def notes(self, what: str | None = None) -> list[Note]:
        """Return what the tasks wrote down so far."""
        # Without the last one if it is still being written.
        *lines, _ = self.ledger.read_text().split("\n")
        notes = [Note(**json.loads(line)) for line in lines]
        return [note for note in notes if what in (None, note.what)]

    def keys(self, what: str) -> list[str]:
        """Return the keys of all notes of a kind, sorted."""
        return sorted(note.key for note in self.notes(what))

    def wait_until(self, condition: Callable[[], Any], timeout: float = PATIENCE) -> None:
        """Return once the condition holds.

        Raises:
            TimeoutError: It does not within `timeout` seconds.
        """
        wait_until(condition, timeout, lambda: f"{len(self.notes())} notes: {self.notes()[-10:]}")

    def wait_for_notes(self, what: str, count: int, timeout: float = PATIENCE) -> list[Note]:
        """Return the notes of a kind once there are that many."""
        self.wait_until(lambda: len(self.notes(what)) >= count, timeout)
        return self.notes(what)

    def order(self, what: str, *args: str) -> None:
        """Make a worker that takes orders do something, and return once it has begun."""
        file = Path(f"{self.ledger}.order")
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps([what, *args]))
        draft.rename(file)
        self.wait_until(lambda: not file.exists())

    def leases(self) -> int:
        """Return how many leases the keeper of a worker that takes orders holds now."""
        known = len(self.notes("leases"))
        self.order("count_leases")
        return int(self.wait_for_notes("leases", known + 1)[-1].key)

    def wait_for_no_lease(self) -> None:
        """Return once that keeper holds no lease."""
        self.wait_until(lambda: self.leases() == 0)

    def counts(self, url: str | None = None) -> tuple[int, int]:
        """Return how many messages of a queue are visible and how many in flight."""
        # Read in one call: between two calls a message may change from one to the other.
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self._attributes(url or self.url, names)
        return int(counts[names[0]]), int(counts[names[1]])

    def wait_until_empty(self, timeout: float = PATIENCE) -> None:
        """Return once nothing is left in the queue, visible or not."""
        self.wait_until(lambda: self.counts() == (0, 0), timeout)

    def calls(self, operation: str | None = None) -> list[Call]:
        """Return the proxy's record of calls about this queue."""
        name = f"/{self.name}"
        return [call for call in self.proxy.calls(operation) if call.queue_url.endswith(name)]

    def late_extensions(self) -> list[float]:
        """Return by how many seconds leases had run out when they were extended."""
        stalls = [Stall(note.at, float(note.key)) for note in self.notes("stall")]
        timeout = int(self._attribute(self.url, "VisibilityTimeout"))
        return late_extensions(self.calls(), timeout, [*stalls, *self.stalls])

    def _create(self, name: str, attributes: Mapping[str, str]) -> str:
        return str(self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _attribute(self, url: str, name: str) -> str:
        return self._attributes(url, [name])[name]

    def _attributes(self, url: str, names: list[str]) -> Mapping[str, str]:
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        attributes: Mapping[str, str] = answer["Attributes"]
        return attributes

"""Starts the server, and changes and reads its queues from another process."""

from __future__ import annotations

import http.client
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu import Connection

from benchmarks.endless.listener import CONTROL_PATH
from benchmarks.endless.template import TASK_ID, Template
from tests.support.markdown import ROOT
from tests.support.servers import ProcessServer

Events = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened on a queue since its counts were forgotten.

    Attributes:
        now: When they were read, in monotonic seconds.
        calls: Calls by operation.
        receives: When receives were answered, in monotonic seconds, and with how many messages.
        deletes: When messages were deleted, and how many.
        in_flight: Messages that are received now, and neither deleted nor released.
        visible: Messages that wait to be received now.
    """

    now: float
    calls: Mapping[str, int]
    received: int
    deleted: int
    in_flight: int
    visible: int
    receives: Events = ()
    deletes: Events = ()


class EndlessServer(ProcessServer):
    """The server in its own process."""

    def command(self) -> list[str]:
        """Return the command that starts it."""
        return [sys.executable, "-m", "benchmarks.endless", "--port", str(self.port)]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        return {"PYTHONPATH": str(ROOT)}

    def queue(self, task: str, args: Sequence[Any] = ()) -> BenchQueue:
        """Create an empty queue for messages of a task.

        Args:
            args: The task's arguments. Each message has its own time instead of `template.SENT`.
        """
        name = f"q-{uuid.uuid4().hex[:12]}"
        queue = BenchQueue(name, self.port)
        queue.change(template=template_of(task, args, name).parts)
        return queue

    def confirming(self, name: str) -> BenchQueue:
        """Create a queue that confirms the extension of any message."""
        queue = BenchQueue(name, self.port)
        queue.change(confirms_all=True)
        return queue


class BenchQueue:
    """A queue of the server, which is empty at first."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._port = port

    def fill(self, *, is_endless: bool = False, count: int = 0, every: float = 0.0) -> None:
        """Change its source of messages.

        Args:
            is_endless: Each receive returns as many messages as it requests.
            count: Messages to add now.
            every: Seconds until another message is added, again and again.
        """
        self.change(source={"is_endless": is_endless, "count": count, "every": every})

    def set_latency(self, seconds: float) -> None:
        """Change the time that the answer to each call takes."""
        self.change(latency=seconds)

    def forget(self) -> None:
        """Begin to count from zero."""
        self.change(forget=True)

    def counts(self, *, events: bool = False) -> Counts:
        """Return the counts, with the times of all receives and deletes if asked for."""
        return Counts(**self.change(events=events))

    def change(self, **body: Any) -> Any:
        """Make a call to `Account.change`, and return its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            content = json.dumps({"queue": self.name, **body})
            connection.request("POST", CONTROL_PATH.decode(), content)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def template_of(task: str, args: Sequence[Any], queue: str) -> Template:
    """Return the template of a task's messages, as Celery and kombu make them."""
    app = Celery("template", broker="memory://", set_as_current=False)
    app.send_task(task, args=args, task_id=TASK_ID, queue=queue)
    with Connection("memory://") as connection:
        return Template.of(connection.default_channel._get(queue))

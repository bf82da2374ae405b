"""Queues with real workers, for parts that watch what happens to their messages."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.processes import keepers_of
from tests.acceptance.scene import Scene
from tests.support.proxy import FaultProxy
from tests.support.servers import MinistackServer
from tests.support.workers import ProcessWorker, launch

#: How long a receive of `taking_over` waits for messages, in seconds.
POLL_SECONDS = 1


class Stage:
    """A server, and queues with their own proxies, so that each has its own record of calls.

    All scenes may be used at the same time, each by one thread.
    """

    def __init__(self, server: MinistackServer, folder: Path, ends: contextlib.ExitStack) -> None:
        self._server = server
        self._folder = folder
        self._ends = ends
        self._workers: list[ProcessWorker] = []
        self._lock = threading.Lock()

    def scene(self, visibility_timeout: int, **options: Any) -> Scene:
        """Make a queue. The options are those of `Scene`."""
        proxy = FaultProxy(self._server.url)
        with self._lock:
            self._ends.enter_context(proxy)

        def start_worker(
            app: str, args: Sequence[str] = (), env: Mapping[str, str] | None = None
        ) -> ProcessWorker:
            with self._lock:
                name = f"worker{len(self._workers) + 1}"
                worker = launch(
                    name,
                    app=app,
                    args=args,
                    env={"CELERY_BROKER_URL": proxy.broker_url, **(env or {})},
                    log_dir=self._folder,
                )
                self._workers.append(worker)
            return worker

        attributes = {"VisibilityTimeout": str(visibility_timeout)}
        return Scene(proxy, start_worker, self._folder, [], attributes=attributes, **options)

    def end_workers(self) -> None:
        """End all workers at once, with their keepers."""
        for worker in self._workers:
            keepers = keepers_of(worker.pid)
            worker.teardown()
            for keeper in keepers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGKILL)
        self._workers.clear()


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Yield a stage. Everything on it ends with the block."""
    with contextlib.ExitStack() as ends:
        server = ends.enter_context(MinistackServer(folder / "ministack.log"))
        opened = Stage(server, folder, ends)
        ends.callback(opened.end_workers)
        yield opened


def sent_messages(scene: Scene) -> list[str]:
    """Return the ids of the messages sent to a scene's queue, in order."""
    return [str((call.answer or {})["MessageId"]) for call in scene.calls("SendMessage")]


@contextmanager
def taking_over(scene: Scene) -> Iterator[None]:
    """Receive all messages of a queue during the block, as another worker would."""
    is_over = threading.Event()

    def receive() -> None:
        while not is_over.is_set():
            scene.client.receive_message(
                QueueUrl=scene.url, MaxNumberOfMessages=10, WaitTimeSeconds=POLL_SECONDS
            )

    thread = threading.Thread(target=receive, name="taking over")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def received_again(scene: Scene, message_id: str, since: float) -> float:
    """Return how many seconds after a moment a message was received, once it was.

    Args:
        since: The moment, in monotonic seconds.
    """

    def receives() -> list[float]:
        return [
            call.answered_at
            for call in scene.calls("ReceiveMessage")
            if call.answered_at is not None and call.answered_at > since
            for message in (call.answer or {}).get("Messages", ())
            if message["MessageId"] == message_id
        ]

    scene.wait_until(receives)
    return min(receives()) - since

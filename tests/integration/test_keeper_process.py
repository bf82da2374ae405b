"""A plain consumer whose keeper has its own process, on the simulated server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest

from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, wait_until

SERVE = "python -m celery_sqs_heartbeat.testing.server --port 0 --queue work"
ROOT = Path(__file__).parents[2]
#: A visibility timeout in seconds, short enough for a test to outlast it several times, and long
#: enough for a machine that stalls while a new keeper starts.
SHORT = 20
#: A visibility timeout that no test outlasts: a message that is visible was released.
LONG = 600
#: How long one receive waits for messages, in seconds.
LOOK = 5


class Scene:
    """A queue with one message, and the consumer that works on it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        shell.start(SERVE)
        url = shell.wait_for("http://").split()[-1]
        shell.export(f"export AWS_ENDPOINT_URL_SQS={url} PYTHONPATH={ROOT}")
        shell.export("export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=thing")
        self.url = f"{url}/000000000000/work"
        self._sqs = boto3.client(
            "sqs",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="thing",
        )
        self._sqs.send_message(QueueUrl=self.url, MessageBody="a")
        self.consumer: subprocess.Popen[bytes]

    def consume(self, timeout: int, task: str, length: int = 0, library: str = "") -> None:
        """Start the consumer and wait until the lease on its message was extended."""
        module = "python -m tests.support.plain_consumer"
        self.consumer = self._shell.start(
            f"{module} {self.url} {timeout} {task} {length} {library}"
        )
        self.wait_for("confirmed True")

    def wait_for(self, text: str) -> str:
        """Return the consumer's output once a line contains the text."""
        return self._shell.wait_for(text)

    def has_said(self, text: str) -> bool:
        """Return whether the consumer's output contains the text."""
        return text in self._shell.log.read_text()

    def end_task(self) -> None:
        """Let the task `wait` end."""
        (self._shell.folder / "end").touch()

    def keeper(self) -> psutil.Process | None:
        """Return the process of the consumer's keeper; None if it has none."""
        for child in psutil.Process(self.consumer.pid).children():
            # A keeper that was killed may be gone before its command line is read.
            with contextlib.suppress(psutil.NoSuchProcess):
                if "celery_sqs_heartbeat.keeper" in child.cmdline():
                    return child
        return None

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages of a receive that waits up to `LOOK` seconds."""
        answer = self._sqs.receive_message(
            QueueUrl=self.url,
            WaitTimeSeconds=LOOK,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return list(answer.get("Messages", ()))

    def receive_again(self) -> list[dict[str, Any]]:
        """Return the messages of the first receive that returns any."""
        received: list[dict[str, Any]] = []

        def has_received() -> bool:
            received[:] = self.receive()
            return bool(received)

        wait_until(has_received)
        return received

    def left(self) -> int:
        """Return how many messages the queue has, hidden or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    def end(self) -> str:
        """Wait until the consumer has ended. Return its output."""
        log = self._shell.wait_for("\nended")
        assert self.consumer.wait(PATIENCE) == 0
        return log


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    shell = Shell(tmp_path)
    try:
        yield Scene(shell)
    finally:
        shell.end()


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not collected it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    "library",
    [
        "",
        pytest.param("gevent", marks=pytest.mark.thorough),
        pytest.param("eventlet", marks=pytest.mark.thorough),
    ],
)
def test_a_task_that_blocks_all_threads_for_three_timeouts_loses_no_lease(
    scene: Scene, library: str
) -> None:
    scene.consume(SHORT, "block", 3 * SHORT, library)
    keeper = scene.keeper()
    assert keeper is not None
    received: list[dict[str, Any]] = []

    def has_ended_task() -> bool:
        received.extend(scene.receive())
        return bool(received) or scene.has_said("owned")

    wait_until(has_ended_task, 3 * SHORT + PATIENCE)
    assert received == []
    log = scene.end()
    assert "owned True" in log
    assert "unconfirmed 0" in log
    # Its keeper was not replaced.
    assert "another starts" not in log
    assert scene.left() == 0
    assert has_ended(keeper)


def test_the_message_of_a_killed_consumer_is_visible_long_before_its_timeout_ends(
    scene: Scene,
) -> None:
    scene.consume(LONG, "wait")
    keeper = scene.keeper()
    assert keeper is not None
    scene.consumer.kill()
    (again,) = scene.receive_again()
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    wait_until(lambda: has_ended(keeper))


def test_a_killed_keeper_is_replaced_and_the_message_is_received_once(scene: Scene) -> None:
    scene.consume(SHORT, "wait")
    first = scene.keeper()
    assert first is not None
    first.kill()
    killed = time.monotonic()
    while time.monotonic() - killed < SHORT + 2:
        assert scene.receive() == []
    second = scene.keeper()
    assert second is not None
    assert second.pid != first.pid
    scene.end_task()
    log = scene.end()
    assert "owned True" in log
    assert "unconfirmed 0" in log
    assert scene.left() == 0
    assert has_ended(second)


def test_ctrl_c_releases_the_held_message_and_leaves_no_process(scene: Scene) -> None:
    scene.consume(LONG, "wait")
    keeper = scene.keeper()
    assert keeper is not None
    os.killpg(scene.consumer.pid, signal.SIGINT)
    log = scene.end()
    assert "interrupted" in log
    assert "Traceback" not in log
    (again,) = scene.receive_again()
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert has_ended(keeper)

"""The servers under test, their known differences from AWS, and the queues that tests make."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import boto3

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.conformance.servers.queue import Queue
from tests.support.servers import MinistackServer, MotoServer, ProcessServer

Behaviour = TypeVar("Behaviour", bound=Callable[..., None])

#: LocalStack has its own virtual environment, because its pins conflict with ours.
LOCALSTACK = "4.13.1"
#: Versions that work together: later versions of the others break it.
REQUIREMENTS = (
    f"localstack-core[base-runtime]=={LOCALSTACK}",
    "cbor2<6",
    "pyopenssl<26",
    "cryptography<47",
    "service_identity<24.2",
)
VENV = Path(__file__).parents[3] / ".venv-localstack"
#: The versions that the differences were measured with.
MEASURED = {"moto": "5.2.5", "ministack": "1.5.33", "localstack": LOCALSTACK}
#: What each server does instead: by behaviour, then by server.
KNOWN: dict[str, dict[str, str]] = {}


def differs(**instead: str) -> Callable[[Behaviour], Behaviour]:
    """Note what servers do instead of a behaviour."""
    assert instead.keys() <= MEASURED.keys()

    def note(behaviour: Behaviour) -> Behaviour:
        KNOWN[behaviour.__name__] = instead
        return behaviour

    return note


def python() -> Path:
    """Return the interpreter of LocalStack's environment, which is made if necessary.

    Raises:
        RuntimeError: It can't be made. Contains pip's error.
    """
    stamp = VENV / "installed.txt"
    interpreter = VENV / "bin" / "python"
    wanted = "\n".join(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [str(interpreter), "-m", "pip", "install", "--quiet", *REQUIREMENTS],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    stamp.write_text(wanted)
    return interpreter


class LocalStackServer(ProcessServer):
    """LocalStack. Its start fails where it can't be installed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "localstack.log")

    def command(self) -> list[str]:
        """Return what to run."""
        return [str(python()), "-m", "localstack.runtime.main"]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        return {
            "SERVICES": "sqs",
            "STRICT_SERVICE_LOADING": "1",
            "EAGER_SERVICE_LOADING": "1",
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
            "OVERRIDE_IN_DOCKER": "0",
            "FILESYSTEM_ROOT": str(self._log_path.parent / "root"),
            "GATEWAY_SERVER": "hypercorn",
            "GATEWAY_LISTEN": f"127.0.0.1:{self.port}",
            "SQS_ENDPOINT_STRATEGY": "path",
        }


#: A prefix for queue names. With AWS credentials, it makes the suite run on AWS, too.
AWS_PREFIX = "SQS_CONFORMANCE_AWS_PREFIX"


class Aws:
    """The real one: nothing to start or stop, but queues to delete."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def client(self, **config: Any) -> Any:
        return boto3.client("sqs")


class Target:
    """One server, started when a test first needs it.

    Args:
        make: Makes the server, given a folder for its files.
        prefix: What the names of queues begin with.
    """

    def __init__(
        self, name: str, version: str, make: Callable[[Path], Any], prefix: str = "conformance-"
    ) -> None:
        self.name = name
        self.version = version
        self._make = make
        self._prefix = prefix
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._server: Any = None
        self._fault: Exception | None = None
        self._queues: list[Queue] = []

    def queue(self, *, vt: int = 600, dead_letters_after: int | None = None) -> Queue:
        """Make a standard queue; its dead-letter queue is at `dead_letters`."""
        return self._create("", {}, vt, dead_letters_after)

    def fifo(
        self, *, vt: int = 600, content_based: bool = False, dead_letters_after: int | None = None
    ) -> Queue:
        """Make a FIFO queue; its dead-letter queue is at `dead_letters`."""
        kind = {"FifoQueue": "true", "ContentBasedDeduplication": str(content_based).lower()}
        return self._create(".fifo", kind, vt, dead_letters_after)

    def stop(self) -> None:
        """Delete the queues and end the server."""
        if self._server is not None:
            for queue in self._queues:
                with contextlib.suppress(Exception):
                    queue.client.delete_queue(QueueUrl=queue.url)
            self._server.stop()
        self._folder.cleanup()

    def _create(self, suffix: str, kind: dict[str, str], vt: int, most: int | None) -> Queue:
        attributes = {**kind, "VisibilityTimeout": str(vt)}
        dead_letters = None if most is None else self._create(suffix, kind, 30, None)
        if dead_letters is not None:
            policy = {"deadLetterTargetArn": dead_letters.attribute("QueueArn")}
            attributes["RedrivePolicy"] = json.dumps({**policy, "maxReceiveCount": most})
        client = self._start().client(retries={"total_max_attempts": 2})
        name = f"{self._prefix}{uuid.uuid4().hex[:12]}{suffix}"
        created = client.create_queue(QueueName=name, Attributes=attributes)
        self._queues.append(Queue(client, created["QueueUrl"], dead_letters))
        return self._queues[-1]

    def _start(self) -> Any:
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._server is None:
                server = self._make(Path(self._folder.name))
                try:
                    server.start()
                except Exception as fault:
                    # Each of its tests must fail, without waiting for it again.
                    self._fault = fault
                    raise
                self._server = server
            return self._server


def targets() -> list[Target]:
    """Return the servers to test."""
    found = [
        Target("simulated", version("celery-sqs-heartbeat"), lambda folder: SimulatedServer()),
        Target("moto", version("moto"), lambda folder: MotoServer()),
        Target("ministack", version("ministack"), lambda folder: MinistackServer(folder / "log")),
        Target("localstack", LOCALSTACK, LocalStackServer),
    ]
    prefix = os.environ.get(AWS_PREFIX)
    if prefix and boto3.Session().get_credentials() is not None:
        found.append(Target("aws", "today", lambda folder: Aws(), prefix))
    return found

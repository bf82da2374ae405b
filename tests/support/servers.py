"""Real SQS emulators on loopback, each started and stopped by the tests."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import subprocess
import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError
from moto.server import ThreadedMotoServer

from tests.support.clients import Service, sqs_client
from tests.support.waiting import wait_until

#: Ports that Linux does not assign to outgoing connections.
PORTS = range(20_000, 32_000)
TRIES = 3
STOP_SECONDS = 5.0


class SqsServer(Service):
    """An SQS emulator."""

    def client(self, **config: Any) -> Any:
        """Return a boto3 client of this server; `config` is as for `sqs_client`."""
        return sqs_client(self.url, **config)


def free_port() -> int:
    """Return a loopback port that nothing listens on right now."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ServerProcess(Service):
    """A server in its own process, which logs to a file."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts it."""

    def settings(self) -> dict[str, str]:
        """Return its environment variables, beside those of this process."""
        return {}

    @abstractmethod
    def answers(self) -> bool:
        """Return whether it answers, and not another server at its port."""

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: It ends, or does not answer.
        """
        for _ in range(TRIES):
            # Another process may have taken the port since it was found to be free.
            self.port = free_port()
            with self._log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command(),
                    env={**os.environ, **self.settings()},
                    cwd=self._log_path.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            if self._has_begun(self._process):
                return
            self.stop()
        end = self._log_path.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{type(self).__name__} does not answer; its log ends:\n{end}")

    def stop(self) -> None:
        """End the process, by force if necessary."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _has_begun(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until it answers or has ended. Return whether it answers."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: process.poll() is not None or self.answers())
            return process.poll() is None
        return False


class ProcessServer(ServerProcess, SqsServer):
    """An emulator in its own process."""

    @property
    def url(self) -> str:
        """The endpoint, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Return whether it answers."""
        with contextlib.suppress(BotoCoreError):
            self.client(retries={"total_max_attempts": 1}).list_queues()
            return True
        return False


class MinistackServer(ProcessServer):
    """Ministack."""

    def command(self) -> list[str]:
        """Return the command that starts it."""
        return [str(Path(sys.executable).with_name("ministack"))]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        return {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "sqs",
            # Otherwise it takes port 8883 on all interfaces, regardless of its services.
            "IOT_MTLS_ENABLED": "0",
            # At INFO it logs a line per request, which no one reads.
            "LOG_LEVEL": "WARNING",
        }


class MotoServer(SqsServer):
    """Moto on a thread of this process. All moto servers of a process share their queues."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)

    @property
    def url(self) -> str:
        """The endpoint, without a path."""
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    def start(self) -> None:
        """Start it, and return once it answers."""
        # One line per request on stderr would bury the output of a failed test.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server.start()

    def stop(self) -> None:
        """End its thread."""
        self._server.stop()

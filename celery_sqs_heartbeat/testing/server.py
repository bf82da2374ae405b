"""`python -m celery_sqs_heartbeat.testing.server`: a simulated SQS for real workers."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.core.lease import MAX_VISIBILITY_SECONDS
from celery_sqs_heartbeat.testing.faultsfile import FaultsFile
from celery_sqs_heartbeat.testing.serving import SimulatedServer

#: How often the faults' file is looked at, in seconds.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class QueueArgument:
    """A queue to begin with: `NAME[:VT[:maxReceiveCount]]`."""

    name: str
    visibility_timeout: int = 30
    max_receive_count: int | None = None

    @classmethod
    def parse(cls, text: str) -> QueueArgument:
        """Return what an argument says."""
        name, *numbers = text.split(":")
        if not name or len(numbers) > 2 or not all(each.isdecimal() for each in numbers):
            raise argparse.ArgumentTypeError(
                f"{text!r} must be NAME[:VT[:maxReceiveCount]], as work:30:5"
            )
        parsed = cls(name, *map(int, numbers))
        if parsed.visibility_timeout > MAX_VISIBILITY_SECONDS or parsed.max_receive_count == 0:
            raise argparse.ArgumentTypeError(
                f"{text!r}: VT must be 0 to {MAX_VISIBILITY_SECONDS}, maxReceiveCount at least 1"
            )
        return parsed

    def create(self, client: Any) -> None:
        """Create the queue, with a dead-letter queue where it has a maxReceiveCount."""
        suffix = ".fifo" if self.name.endswith(".fifo") else ""
        attributes = {"VisibilityTimeout": str(self.visibility_timeout)}
        kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
        if self.max_receive_count is not None:
            dead = f"{self.name.removesuffix(suffix)}-dead{suffix}"
            client.create_queue(QueueName=dead, Attributes=kind)
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": dead, "maxReceiveCount": self.max_receive_count}
            )
        client.create_queue(QueueName=self.name, Attributes={**attributes, **kind})


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    file = FaultsFile(arguments.faults) if arguments.faults else None
    try:
        faults = file.read() if file else None
        server = SimulatedServer(arguments.host, arguments.port, seed=arguments.seed, faults=faults)
    except ValueError as error:
        parser.error(f"--faults: {error}")
    except OSError as error:
        parser.error(f"--host {arguments.host} --port {arguments.port}: {error}")
    for queue in arguments.queue:
        queue.create(server.sqs)
    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *ignored: asked_to_end.set())
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        while not asked_to_end.wait(_LOOK_SECONDS if file else None):
            if file:
                _read_again(file, server)
    return 0


def _read_again(file: FaultsFile, server: SimulatedServer) -> None:
    """Take over the file if it has changed; what is wrong with it changes nothing."""
    try:
        if faults := file.read():
            server.faults = faults
    except ValueError as error:
        sys.stderr.write(f"the faults stay as they were: {error}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m celery_sqs_heartbeat.testing.server",
        description="Serve a simulated SQS. GET and PUT /_faults, GET /_calls and "
        "POST /_advance read and change how it behaves.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="makes chance repeatable [0]")
    parser.add_argument(
        "--faults", type=Path, metavar="FILE.json", help="read now and whenever it changes"
    )
    parser.add_argument(
        "--queue",
        type=QueueArgument.parse,
        action="append",
        default=[],
        metavar="NAME[:VT[:maxReceiveCount]]",
        help="a queue to begin with; with a maxReceiveCount it gets a dead-letter queue NAME-dead",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

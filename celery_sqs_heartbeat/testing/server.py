"""`python -m celery_sqs_heartbeat.testing.server`: a simulated SQS for real workers."""

from __future__ import annotations

import json
import secrets
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.common.exits import Command, Refusal
from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.faultsfile import FaultsFile
from celery_sqs_heartbeat.testing.names import check_name
from celery_sqs_heartbeat.testing.serving import SimulatedServer

#: How often the file of faults is checked, in seconds.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class QueueArgument:
    """A queue to create at the start: `NAME[:VT[:maxReceiveCount]]`."""

    name: str
    visibility_timeout: int = 30
    max_receive_count: int | None = None

    @classmethod
    def parse(cls, text: str) -> QueueArgument:
        """Return the queue that an argument describes.

        Raises:
            click.BadParameter: The argument is invalid.
        """
        name, *numbers = text.split(":")
        if not name or len(numbers) > 2 or not all(each.isdecimal() for each in numbers):
            raise click.BadParameter(
                f"{text!r} must be NAME[:VT[:maxReceiveCount]], such as work:30:5"
            )
        parsed = cls(name, *map(int, numbers))
        try:
            check_name(name, is_fifo=name.endswith(".fifo"))
        except SqsError as error:
            raise click.BadParameter(f"{name!r}: {error.text}") from None
        if parsed.visibility_timeout > SQS.longest_timeout or parsed.max_receive_count == 0:
            raise click.BadParameter(
                f"{text!r}: VT must be 0 to {SQS.longest_timeout}, maxReceiveCount at least 1"
            )
        return parsed

    def create(self, client: Any) -> None:
        """Create the queue, with a dead-letter queue if it has a maxReceiveCount.

        Raises:
            ClientError: The dead-letter queue's name is too long, or the queue exists already
                with other attributes.
        """
        suffix = ".fifo" if self.name.endswith(".fifo") else ""
        attributes = {"VisibilityTimeout": str(self.visibility_timeout)}
        kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
        if self.max_receive_count is not None:
            dead = f"{self.name.removesuffix(suffix)}-dead{suffix}"
            url = client.create_queue(QueueName=dead, Attributes=kind)["QueueUrl"]
            told = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            attributes["RedrivePolicy"] = json.dumps(
                {
                    "deadLetterTargetArn": told["Attributes"]["QueueArn"],
                    "maxReceiveCount": self.max_receive_count,
                }
            )
        client.create_queue(QueueName=self.name, Attributes={**attributes, **kind})


def _queues(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[QueueArgument]:
    del context, parameter
    return [QueueArgument.parse(text) for text in texts]


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--seed",
    type=int,
    show_default="another at each start",
    help="Makes ids and chance repeatable. Without it, no two servers have a message id in common.",
)
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Faults, read now and whenever the file changes.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    callback=_queues,
    metavar="NAME[:VT[:maxReceiveCount]]",
    help="A queue to begin with; with a maxReceiveCount it gets a dead-letter queue: NAME-dead, or "
    "NAME-dead.fifo for NAME.fifo.",
)
def main(
    host: str, port: int, seed: int | None, faults_file: Path | None, queues: list[QueueArgument]
) -> None:
    """Serve a simulated SQS until SIGTERM or SIGINT.

    GET and PUT /_faults, GET /_calls and POST /_advance read and change how it behaves.
    """
    file = FaultsFile(faults_file) if faults_file else None
    try:
        faults = file.read() if file else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--faults") from None
    try:
        server = SimulatedServer(host, port, seed=secrets.randbits(64) if seed is None else seed)
    except OSError as error:
        raise Refusal(f"--host {host} --port {port}: {error}") from None
    for queue in queues:
        try:
            queue.create(server.sqs)
        except ClientError as error:
            raise Refusal(f"--queue {queue.name}: {error.response['Error']['Message']}") from None
    if faults is not None:
        # Only now: the faults must not affect the creation of the queues.
        server.faults = faults
    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *ignored: asked_to_end.set())
    with server:
        click.echo(server.url)
        while not asked_to_end.wait(_LOOK_SECONDS if file else None):
            if file:
                _read_again(file, server)


def _read_again(file: FaultsFile, server: SimulatedServer) -> None:
    """Apply the file if it has changed; an invalid file changes nothing."""
    try:
        if faults := file.read():
            server.faults = faults
    except ValueError as error:
        click.echo(f"the faults stay unchanged: {error}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m celery_sqs_heartbeat.testing.server")

"""`python -m celery_sqs_heartbeat.testing.server`: a simulated SQS for real workers."""

from __future__ import annotations

import json
import re
import secrets
import signal
import threading
from pathlib import Path

import click
from botocore.exceptions import ClientError

from celery_sqs_heartbeat.common.exits import Command, Refusal
from celery_sqs_heartbeat.testing.attributes import arn
from celery_sqs_heartbeat.testing.faults import FaultsFile
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.testing.sqs import SimulatedSqs

#: How often the file of faults is checked, in seconds.
_LOOK_SECONDS = 0.2
_QUEUE = re.compile(r"([^:]+)(?::([0-9]+)(?::([0-9]+))?)?")


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
    metavar="NAME[:VT[:maxReceiveCount]]",
    help="A queue to begin with; with a maxReceiveCount it gets a dead-letter queue: NAME-dead, or "
    "NAME-dead.fifo for NAME.fifo.",
)
def main(
    host: str, port: int, seed: int | None, faults_file: Path | None, queues: tuple[str, ...]
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
        _create_queue(server.sqs, queue)
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


def _create_queue(sqs: SimulatedSqs, described: str) -> None:
    """Create a queue, with a dead-letter queue if it has a maxReceiveCount."""
    parts = _QUEUE.fullmatch(described)
    if parts is None:
        form = "NAME[:VT[:maxReceiveCount]], such as work:30:5"
        raise click.BadParameter(f"{described!r} must be {form}", param_hint="--queue")
    name, timeout, count = parts.groups()
    suffix = ".fifo" if name.endswith(".fifo") else ""
    kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
    attributes = {"VisibilityTimeout": timeout or "30", **kind}
    try:
        if count is not None:
            dead = f"{name.removesuffix(suffix)}-dead{suffix}"
            sqs.create_queue(QueueName=dead, Attributes=kind)
            policy = {"deadLetterTargetArn": arn(dead), "maxReceiveCount": count}
            attributes["RedrivePolicy"] = json.dumps(policy)
        sqs.create_queue(QueueName=name, Attributes=attributes)
    except ClientError as error:
        reason = error.response["Error"]["Message"]
        raise Refusal(f"--queue {described}: {reason}") from None


def _read_again(file: FaultsFile, server: SimulatedServer) -> None:
    """Apply the file if it has changed; an invalid file changes nothing."""
    try:
        if faults := file.read():
            server.faults = faults
    except ValueError as error:
        click.echo(f"the faults stay unchanged: {error}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m celery_sqs_heartbeat.testing.server")

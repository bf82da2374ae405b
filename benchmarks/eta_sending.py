"""Sends many tasks with ETAs quickly. kombu would send them one by one."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

from celery import Celery
from kombu.utils.json import dumps

TASK = "benchmarks.eta_tasks.note_delay"
BATCH, THREADS = 10, 4


def send(client: Any, url: str, *, tasks: int, countdown: float, spread: float) -> None:
    """Send the tasks with a boto3 client.

    Args:
        countdown: The time from now to the first ETA, in seconds.
        spread: The time from the first to the last ETA, in seconds.
    """

    def send_batch(bodies: Sequence[str]) -> None:
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        answer = client.send_message_batch(QueueUrl=url, Entries=entries)
        assert not answer.get("Failed"), answer

    begun = datetime.now(timezone.utc)
    etas = (begun + timedelta(seconds=countdown + n * spread / tasks) for n in range(tasks))
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(send_batch, _batches(_bodies(etas))):
            pass


def _batches(bodies: Iterator[str]) -> Iterator[Sequence[str]]:
    while batch := list(islice(bodies, BATCH)):
        yield batch


def _bodies(etas: Iterator[datetime]) -> Iterator[str]:
    """Yield the bodies that kombu would send, for each ETA."""
    app = Celery("sender", broker="memory://")
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        for eta in etas:
            app.send_task(TASK, eta=eta, connection=connection)
            yield base64.b64encode(dumps(channel._get("celery")).encode()).decode()

"""The parts of an SQS account that operations work on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.options import QueueOptions
from celery_sqs_heartbeat.testing.queue import SimulatedQueue


class Account(Protocol):
    """The queues of a simulated SQS, with its clock and random generator; see `SimulatedSqs`."""

    clock: Callable[[], float]
    faults: Faults
    epoch: float
    random: random.Random
    queues: dict[str, SimulatedQueue]
    deleted: dict[str, float]

    def new_queue(self, name: str, options: QueueOptions | None = None) -> SimulatedQueue:
        """Make a queue with any options."""

    def queue(self, url_or_name: Any) -> SimulatedQueue:
        """Return a queue by its URL or name."""

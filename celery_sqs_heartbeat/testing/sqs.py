"""A simulated SQS with the methods of a boto3 client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.attributes import ACCOUNT
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.faults import Faults
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.operations import CALLS, NOT_MODELLED, OPERATIONS, check_operation
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue
from celery_sqs_heartbeat.testing.requests import Answer, Request


class SimulatedSqs:
    """An SQS that follows AWS, in this process and on any clock.

    It has the methods of a boto3 SQS client, with the same arguments, answers and
    errors (`botocore.exceptions.ClientError`). `call` takes an operation by name. It never
    waits: a long poll that finds nothing returns at once, and the caller repeats it, as the
    HTTP server does. Not thread-safe.

    Args:
        clock: Seconds; `time.monotonic` or a `FakeClock`.
        seed: Makes handles, ids and random choices repeatable.
        faults: The faults. The caller has to cause those of the network (latency, lost requests
            and answers).
        epoch: Unix time of the clock's zero, for timestamps.
        url: The beginning of all queue URLs.

    Attributes:
        queues: By name.
        deleted: When each deleted queue was deleted, by name.
        on_delete: Called with each deleted message.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        epoch: float | None = None,
        url: str = "https://sqs.us-east-1.amazonaws.com",
    ) -> None:
        self.clock = clock
        self.faults = faults or Faults(seed=seed)
        self.epoch = time.time() - clock() if epoch is None else epoch
        self.url = url
        self.random = random.Random(seed)
        self.queues: dict[str, SimulatedQueue] = {}
        self.deleted: dict[str, float] = {}
        self.on_delete: Callable[[SimulatedMessage], None] = lambda message: None

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        operation = name.title().replace("_", "")
        if operation not in OPERATIONS and operation not in NOT_MODELLED:
            raise AttributeError(f"{type(self).__name__} has no operation {name!r}")

        def method(**request: Any) -> Answer:
            try:
                return self.call(operation, request)
            except SqsError as error:
                raise error.as_client_error(operation) from None

        return method

    def call(self, operation: str, request: Request) -> Answer:
        """Do an operation, such as "ReceiveMessage", and return SQS's answer.

        Raises:
            SqsError: SQS refuses it, or a fault happened.
        """
        check_operation(operation)
        fault = self.faults.of(operation)
        if self.faults.happens(fault.denied):
            raise errors.denied(operation)
        if self.faults.happens(fault.throttled):
            raise errors.throttled()
        if self.faults.happens(fault.failed):
            raise errors.internal()
        answer = self.perform(operation, request)
        if self.faults.happens(fault.failed_after):
            raise errors.internal()
        return answer

    def perform(self, operation: str, request: Request) -> Answer:
        """Do an operation without faults, such as the next look of a long poll.

        Raises:
            SqsError: SQS refuses it.
        """
        return CALLS[operation](self, request)

    def new_queue(self, name: str, options: QueueOptions | None = None) -> SimulatedQueue:
        """Make a queue with any options; a name that ends in `.fifo` makes a FIFO queue."""
        queue = SimulatedQueue(
            f"{self.url}/{ACCOUNT}/{name}",
            options or QueueOptions(),
            self.random,
            lambda message: self.on_delete(message),
        )
        queue.created_at = queue.modified_at = self.clock()
        self.queues[name] = queue
        return queue

    def queue(self, url_or_name: Any) -> SimulatedQueue:
        """Return a queue by its URL, with any host, or by its name.

        Raises:
            SqsError: There is no such queue.
        """
        queue = self.queues.get(str(url_or_name).rsplit("/", 1)[-1])
        if queue is None:
            raise errors.no_queue()
        return queue

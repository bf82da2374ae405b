"""A queue that a worker consumes from, and what its receives ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.leases.lease import LeaseTerms

#: How long a poll beside another one of its queue waits for messages, in seconds: the shortest wait
#: for which SQS asks all of its servers (SQS developer guide, "Amazon SQS short and long polling").
WAIT_BESIDE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedQueue:
    """A queue as one channel consumes from it.

    Attributes:
        name: The worker's name for it.
        url: Where it is reached now.
        lease_url: Its URL in the leases on its messages, which stays the same.
        terms: The terms of its leases.
        task_terms: Those of tasks that have their own, by the task's name.
        timeout: The visibility timeout that a receive requests, in seconds; None if it requests
            none, because the queue's own is not known.
        max_receive_count: From its redrive policy; None without one, or if unknown.
        batch: The most messages that one receive asks for.
        wait: How long a poll waits for messages, in seconds.
        pause: The pause after an empty answer, in seconds.
        system_attributes: Which of SQS's attributes to request with each message.
        sender_attributes: Which of the sender's.
    """

    name: str
    url: str
    lease_url: str
    terms: LeaseTerms
    task_terms: Mapping[str, LeaseTerms] = field(default_factory=dict)
    timeout: int | None = None
    max_receive_count: int | None = None
    batch: int = MAX_RECEIVED
    wait: int = 0
    pause: float = 0.0
    system_attributes: Sequence[str] = ()
    sender_attributes: Sequence[str] = ()

    def terms_of(self, task: str | None) -> LeaseTerms:
        """Return the terms of the lease on a task's message."""
        return self.terms if task is None else self.task_terms.get(task, self.terms)

    def wait_of(self, *, is_beside: bool) -> int:
        """Return how long a poll waits, in seconds; less beside another poll of the queue."""
        return min(self.wait, WAIT_BESIDE) if is_beside else self.wait

    def parameters(self, count: int, wait: int) -> dict[str, Any]:
        """Return the parameters of a receive (SQS API reference, ReceiveMessage)."""
        parameters = {
            "QueueUrl": self.url,
            "MaxNumberOfMessages": count,
            "WaitTimeSeconds": wait,
            "MessageSystemAttributeNames": self.system_attributes,
        }
        if self.sender_attributes:
            parameters["MessageAttributeNames"] = self.sender_attributes
        if self.timeout is not None:
            parameters["VisibilityTimeout"] = self.timeout
        return parameters

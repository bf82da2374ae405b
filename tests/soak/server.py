"""The simulated SQS, in its own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from tests.soak.model import Queue
from tests.support.servers import ProcessServer
from tests.support.workers import ROOT


class SimulatedProcess(ProcessServer):
    """`python -m celery_sqs_heartbeat.testing.server`."""

    def command(self) -> list[str]:
        """Return what to run."""
        module = "celery_sqs_heartbeat.testing.server"
        return [sys.executable, "-m", module, "--port", str(self.port)]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        # It runs in its own folder, and this checkout is the one under test.
        return {"PYTHONPATH": str(ROOT)}

    def set_timeout(self, queue: str, seconds: int) -> None:
        """Change a queue's visibility timeout."""
        client = self.client()
        url = client.get_queue_url(QueueName=queue)["QueueUrl"]
        attributes = {"VisibilityTimeout": str(seconds)}
        client.set_queue_attributes(QueueUrl=url, Attributes=attributes)

    def create(self, queues: Iterable[Queue]) -> None:
        """Create the queues, with their dead-letter queues."""
        client = self.client()
        for queue in queues:
            attributes = {"VisibilityTimeout": str(queue.visibility_timeout)}
            if queue.is_fifo:
                attributes["FifoQueue"] = "true"
            if queue.max_receive_count is not None:
                url = client.create_queue(QueueName=f"{queue.name}-dead")["QueueUrl"]
                told = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
                policy = {
                    "deadLetterTargetArn": told["Attributes"]["QueueArn"],
                    "maxReceiveCount": queue.max_receive_count,
                }
                attributes["RedrivePolicy"] = json.dumps(policy)
            client.create_queue(QueueName=queue.name, Attributes=attributes)

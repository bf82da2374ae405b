"""What a worker's own connection to SQS records for the audit."""

from __future__ import annotations

import functools

from celery_sqs_heartbeat.testing import SimulatedServer
from tests.soak.link import Link
from tests.soak.model import DELETE, Call


def test_the_delete_of_a_message_that_has_become_anothers_is_recorded_as_refused() -> None:
    calls: list[Call] = []
    with SimulatedServer() as server, Link("a", server.url, calls).proxy as proxy:
        client = proxy.client()
        url = client.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for group in ("g", "h"):
            client.send_message(
                QueueUrl=url,
                MessageBody="eyJoZWFkZXJzIjoge319",
                MessageGroupId=group,
                MessageDeduplicationId=group,
            )
        receive = functools.partial(
            client.receive_message, QueueUrl=url, MessageSystemAttributeNames=["All"]
        )
        received = receive(MaxNumberOfMessages=10)["Messages"]
        stale, ours = (message["ReceiptHandle"] for message in received)
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=stale, VisibilityTimeout=0)
        receive()
        client.delete_message_batch(
            QueueUrl=url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate((stale, ours))
            ],
        )
    (call,) = (call for call in calls if call.operation == DELETE)
    assert [(entry.done, entry.refused) for entry in call.entries] == [(False, True), (True, False)]

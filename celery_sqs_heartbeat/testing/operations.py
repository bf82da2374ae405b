"""The operations of SQS: the modelled ones and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from celery_sqs_heartbeat.testing import errors, message_calls, queue_calls
from celery_sqs_heartbeat.testing.account import Account
from celery_sqs_heartbeat.testing.errors import SqsError
from celery_sqs_heartbeat.testing.requests import Answer, Request

#: The function for each modelled operation.
CALLS: Mapping[str, Callable[[Account, Request], Answer]] = {
    "ChangeMessageVisibility": message_calls.change_message_visibility,
    "ChangeMessageVisibilityBatch": message_calls.change_message_visibility_batch,
    "CreateQueue": queue_calls.create_queue,
    "DeleteMessage": message_calls.delete_message,
    "DeleteMessageBatch": message_calls.delete_message_batch,
    "DeleteQueue": queue_calls.delete_queue,
    "GetQueueAttributes": queue_calls.get_queue_attributes,
    "GetQueueUrl": queue_calls.get_queue_url,
    "ListQueues": queue_calls.list_queues,
    "PurgeQueue": queue_calls.purge_queue,
    "ReceiveMessage": message_calls.receive_message,
    "SendMessage": message_calls.send_message,
    "SendMessageBatch": message_calls.send_message_batch,
    "SetQueueAttributes": queue_calls.set_queue_attributes,
}
OPERATIONS = frozenset(CALLS)
NOT_MODELLED = frozenset(
    (
        "AddPermission",
        "CancelMessageMoveTask",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "RemovePermission",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    )
)


def check_operation(name: str) -> None:
    """Refuse an operation that can't be done.

    Raises:
        SqsError: It is not modelled, or SQS has none of that name.
    """
    if name in NOT_MODELLED:
        raise errors.not_modelled(name)
    if name not in OPERATIONS:
        known = ", ".join(sorted(OPERATIONS))
        raise SqsError("InvalidAction", f"SQS has no operation {name!r}; use one of {known}")

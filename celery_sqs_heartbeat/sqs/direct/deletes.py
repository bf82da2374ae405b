"""Makes a client's `delete_message` take less CPU than boto3's."""

from __future__ import annotations

from typing import Any

from botocore.client import BaseClient

from celery_sqs_heartbeat.sqs.direct.direct_calls import allow_direct_calls, make_call

#: An attribute of clients whose deletes were looked at.
_SEEN = "sqs_heartbeat_deletes"
_PARAMETERS = {"QueueUrl", "ReceiptHandle"}


def make_deletes_direct(client: Any) -> None:
    """Let a boto3 client make its calls of `delete_message` directly. Does so once.

    boto3 repeats a direct call that fails, so errors are those of boto3, after its retries.

    boto3's newer retry modes count calls that succeed, and would not see direct ones: after some
    failures, "adaptive" would slow all calls down for good, and "standard" would no longer retry.
    In these modes boto3 makes all calls.

    Only for clients to which no one else has added event handlers, see `allow_direct_calls`.
    """
    if not isinstance(client, BaseClient) or hasattr(client, _SEEN):
        return
    setattr(client, _SEEN, True)
    if client.meta.config.retries["mode"] != "legacy":
        return
    allow_direct_calls(client, repeats=True)
    by_boto3 = client.delete_message

    def delete_message(**params: Any) -> Any:
        # boto3 checks all others.
        if params.keys() == _PARAMETERS and all(isinstance(each, str) for each in params.values()):
            return make_call(client, "DeleteMessage", params, by_boto3)
        return by_boto3(**params)

    client.delete_message = delete_message

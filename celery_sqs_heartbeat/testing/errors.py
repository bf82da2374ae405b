"""The errors of SQS, with AWS's codes and words."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class SqsError(Exception):
    """An error as SQS says it; of a whole call or of one entry of a batch.

    Attributes:
        code: The error code of the query protocol, as boto3 shows it.
        status: The HTTP status of a whole call that fails so.
        sender_fault: Whether SQS blames the caller.
        entry: Code and text as an item of `Failed`, where they are others.
    """

    def __init__(
        self,
        code: str,
        text: str,
        status: int = 400,
        sender_fault: bool = True,
        entry: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {text}")
        self.entry = entry or (code.rsplit(".", 1)[-1], text)
        self.code = code
        self.text = text
        self.status = status
        self.sender_fault = sender_fault

    def as_client_error(self, operation: str) -> ClientError:
        """Return what boto3 raises for it."""
        return ClientError(
            {
                "Error": {"Code": self.code, "Message": self.text},
                "ResponseMetadata": {"HTTPStatusCode": self.status},
            },
            operation,
        )

    def as_entry(self, entry_id: str) -> dict[str, Any]:
        """Return it as an item of `Failed`."""
        return {
            "Id": entry_id,
            "SenderFault": self.sender_fault,
            "Code": self.entry[0],
            "Message": self.entry[1],
        }


def invalid_handle(handle: str) -> SqsError:
    """SQS never made such a handle (SQS API reference, ReceiptHandleIsInvalid)."""
    text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
    return SqsError("ReceiptHandleIsInvalid", text, 404)


def not_available(handle: str) -> SqsError:
    """The message is deleted (LocalStack's AWS snapshots)."""
    return SqsError(
        "InvalidParameterValue",
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not "
        "exist or is not available for visibility timeout change.",
    )


def handle_expired(handle: str) -> SqsError:
    """A FIFO queue refuses an expired handle.

    For a delete by LocalStack's AWS snapshots, for a change by the report in
    github.com/RutledgePaulV/piped/issues/12, in a batch by that in
    github.com/smaskalik/sqsmover/issues/54.
    """
    return SqsError(
        "InvalidParameterValue",
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle "
        "has expired.",
        entry=("ReceiptHandleIsInvalid", "The receipt handle has expired"),
    )


def beyond_limit(timeout: int) -> SqsError:
    """The timeout would reach past 12 hours after the receive (SQS Developer Guide)."""
    return SqsError(
        "InvalidParameterValue",
        f"Value {timeout} for parameter VisibilityTimeout is invalid. Reason: Total "
        "VisibilityTimeout for the message is beyond the limit [43200 seconds].",
    )


def out_of_range(name: str, value: object, text: str) -> SqsError:
    """A number outside its range (SQS API reference, each parameter's description)."""
    return SqsError(
        "InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {text}."
    )


def unknown_attribute(name: str) -> SqsError:
    """A queue has no such attribute, or not to be set (LocalStack's AWS snapshots)."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def wrong_attribute(name: str) -> SqsError:
    """A value that the attribute can't have (LocalStack's AWS snapshots)."""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def other_queue(attribute: str) -> SqsError:
    """A queue of that name exists with another value (LocalStack's AWS snapshots)."""
    return SqsError(
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute "
        f"{attribute}",
    )


def deleted_recently() -> SqsError:
    """SQS API reference, CreateQueue, QueueDeletedRecently."""
    return SqsError(
        "AWS.SimpleQueueService.QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name.",
    )


def purge_in_progress(name: str) -> SqsError:
    """SQS API reference, PurgeQueue, PurgeQueueInProgress."""
    return SqsError(
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
        403,
    )


def no_deduplication() -> SqsError:
    """A FIFO queue can't tell repetitions of the message (LocalStack's AWS snapshots)."""
    return SqsError(
        "InvalidParameterValue",
        "The queue should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly",
    )


def missing(name: str) -> SqsError:
    """The request lacks a parameter (LocalStack's AWS snapshots)."""
    return SqsError("MissingParameter", f"The request must contain the parameter {name}.")


def no_queue() -> SqsError:
    """SQS API reference, QueueDoesNotExist."""
    return SqsError(
        "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist."
    )


def over_limit() -> SqsError:
    """Too many messages in flight, on a short poll (SQS API reference, ReceiveMessage)."""
    return SqsError("OverLimit", "The in-flight message limit is reached.", 403)


def denied(operation: str) -> SqsError:
    """No permission for the action (SQS Developer Guide, "Troubleshooting access denied")."""
    return SqsError(
        "AccessDenied",
        f"User is not authorized to perform: sqs:{operation.removesuffix('Batch')}",
        403,
    )


def throttled() -> SqsError:
    """Too many calls (SQS API reference, RequestThrottled)."""
    return SqsError("RequestThrottled", "Rate exceeded", 400, sender_fault=True)


def internal(status: int = 500) -> SqsError:
    """SQS is in trouble (SQS Developer Guide, "Troubleshooting API errors")."""
    return SqsError("InternalError", "We encountered an internal error.", status, False)

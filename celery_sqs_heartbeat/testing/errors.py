"""The errors of SQS, with AWS's codes and texts."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class SqsError(Exception):
    """An error as SQS returns it, for a whole call or for one entry of a batch.

    Attributes:
        code: The error code of the query protocol, as boto3 shows it.
        status: The HTTP status if a whole call fails with it.
        sender_fault: Whether SQS blames the caller.
        entry: Code and text as an item of `Failed`.
    """

    def __init__(self, code: str, text: str, status: int = 400, sender_fault: bool = True) -> None:
        super().__init__(f"{code}: {text}")
        self.entry = code.rsplit(".", 1)[-1], text
        self.code = code
        self.text = text
        self.status = status
        self.sender_fault = sender_fault

    def as_client_error(self, operation: str) -> ClientError:
        """Return the error that boto3 raises for it."""
        error = {"Code": self.code, "Message": self.text}
        status = {"HTTPStatusCode": self.status}
        return ClientError({"Error": error, "ResponseMetadata": status}, operation)

    def as_entry(self, entry_id: str) -> dict[str, Any]:
        """Return it as an item of `Failed`."""
        code, text = self.entry
        return {"Id": entry_id, "SenderFault": self.sender_fault, "Code": code, "Message": text}


def invalid(name: str, value: object, reason: str) -> SqsError:
    """A parameter that SQS does not accept (SQS API reference, each parameter's description)."""
    text = f"Value {value} for parameter {name} is invalid. Reason: {reason}."
    return SqsError("InvalidParameterValue", text)


def missing(name: str) -> SqsError:
    """The request lacks a parameter (LocalStack's AWS snapshots)."""
    return SqsError("MissingParameter", f"The request must contain the parameter {name}.")


def not_available(handle: str) -> SqsError:
    """The message is deleted (LocalStack's AWS snapshots)."""
    reason = "Message does not exist or is not available for visibility timeout change"
    return invalid("ReceiptHandle", handle, reason)


def handle_expired(handle: str) -> SqsError:
    """A FIFO queue refuses an expired handle.

    Sources: LocalStack's AWS snapshots for a delete, github.com/RutledgePaulV/piped/issues/12
    for a change, github.com/smaskalik/sqsmover/issues/54 for a batch.
    """
    error = invalid("ReceiptHandle", handle, "The receipt handle has expired")
    error.entry = ("ReceiptHandleIsInvalid", "The receipt handle has expired")
    return error


def unknown_attribute(name: str) -> SqsError:
    """A queue or message has no such attribute, or none to set (LocalStack's AWS snapshots)."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def no_queue() -> SqsError:
    """SQS API reference, QueueDoesNotExist."""
    text = "The specified queue does not exist."
    return SqsError("AWS.SimpleQueueService.NonExistentQueue", text)


def denied(operation: str) -> SqsError:
    """No permission for the action (SQS Developer Guide, "Troubleshooting access denied")."""
    action = operation.removesuffix("Batch")
    return SqsError("AccessDenied", f"User is not authorized to perform: sqs:{action}", 403)


def throttled() -> SqsError:
    """Too many calls (SQS API reference, RequestThrottled)."""
    return SqsError("RequestThrottled", "Rate exceeded")


def internal(status: int = 500) -> SqsError:
    """An internal error of SQS (SQS Developer Guide, "Troubleshooting API errors")."""
    return SqsError("InternalError", "We encountered an internal error.", status, False)

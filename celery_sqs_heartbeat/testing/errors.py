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
        entry: Code and text as an item of `Failed`, if they differ.
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
        """Return the error that boto3 raises for it."""
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

    Sources: LocalStack's AWS snapshots for a delete, github.com/RutledgePaulV/piped/issues/12
    for a change, github.com/smaskalik/sqsmover/issues/54 for a batch.
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


def invalid(text: str) -> SqsError:
    """A parameter that SQS does not accept."""
    return SqsError("InvalidParameterValue", text)


def out_of_range(name: str, value: object, text: str) -> SqsError:
    """A number outside its range (SQS API reference, each parameter's description)."""
    return invalid(f"Value {value} for parameter {name} is invalid. Reason: {text}.")


def unsupported(text: str) -> SqsError:
    """SQS API reference, UnsupportedOperation, of each action."""
    return SqsError("AWS.SimpleQueueService.UnsupportedOperation", text)


def not_modelled(operation: str) -> SqsError:
    """An operation that SQS has, but the simulation does not model."""
    return unsupported(f'{operation} is not modelled; see docs/testing.md, "Not modelled"')


def no_deduplication() -> SqsError:
    """A FIFO queue can't detect repetitions of the message (LocalStack's AWS snapshots)."""
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
    """An internal error of SQS (SQS Developer Guide, "Troubleshooting API errors")."""
    return SqsError("InternalError", "We encountered an internal error.", status, False)

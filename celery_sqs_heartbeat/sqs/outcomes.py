"""Translates errors of SQS or the network into outcomes for the entries of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)

from celery_sqs_heartbeat.leases.calls import Outcome

#: The error codes of the SQS API reference ("Common errors" and the errors of
#: ChangeMessageVisibility, DeleteMessage and their batch forms), by their last
#: dotted segment: JSON and query protocol, and other servers, prefix them differently.
_BY_CODE = {
    **dict.fromkeys(
        (
            "ReceiptHandleIsInvalid",
            "MessageNotInflight",
        ),
        Outcome.LOST,
    ),
    # SQS returns these for a queue that is gone, and for one that a policy hides from us.
    **dict.fromkeys(("QueueDoesNotExist", "NonExistentQueue"), Outcome.NO_QUEUE),
    **dict.fromkeys(
        (
            "RequestThrottled",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "TooManyRequestsException",
            "RequestLimitExceeded",
            "OverLimit",
            "KmsThrottled",
            "SlowDown",
            "PriorRequestNotComplete",
        ),
        Outcome.THROTTLED,
    ),
    **dict.fromkeys(
        (
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "NotAuthorized",
            "KmsAccessDenied",
            "OptInRequired",
        ),
        Outcome.DENIED,
    ),
    **dict.fromkeys(
        (
            "InvalidParameterValue",
            "InvalidParameterCombination",
            "InvalidAttributeValue",
            "InvalidAddress",
            "InvalidIdFormat",
            "InvalidBatchEntryId",
            "InvalidQueryParameter",
            "BatchEntryIdsNotDistinct",
            "EmptyBatchRequest",
            "TooManyEntriesInBatchRequest",
            "MissingParameter",
            "MalformedInput",
            "MalformedQueryString",
            "SerializationException",
            "ValidationError",
            "ValidationException",
            "UnsupportedOperation",
        ),
        Outcome.MALFORMED,
    ),
    # The credentials are being replaced, or a clock is wrong. Both are usually temporary. If not,
    # the worker can't work at all, and kombu reports it.
    **dict.fromkeys(
        (
            "AuthFailure",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSecurity",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
            "ExpiredToken",
            "ExpiredTokenException",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "InternalError",
            "InternalFailure",
            "ServiceUnavailable",
        ),
        Outcome.FAILED,
    ),
}

#: Refusals that share the code InvalidParameterValue and differ by their text, in
#: lower case. The first means the 12-hour limit, the others an expired or stale handle.
_BY_TEXT = (
    ("beyond the limit", Outcome.CAPPED),
    ("does not exist or is not available", Outcome.LOST),
    ("receipt handle has expired", Outcome.LOST),
    ("receipthandle is invalid", Outcome.LOST),
    ("not a valid receipt handle", Outcome.LOST),
)

#: There are no credentials to sign a call with.
NO_CREDENTIALS = (
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
#: Nothing was sent.
_NOT_SENT = (*NO_CREDENTIALS, EndpointConnectionError, ConnectTimeoutError)


def of_error(error: Mapping[str, Any]) -> Outcome:
    """Return the outcome for a `Code` and `Message` pair. Unknown codes mean UNKNOWN."""
    code = str(error.get("Code") or "").rsplit(".", 1)[-1].rsplit("#", 1)[-1]
    text = str(error.get("Message") or "").lower()
    outcome = _BY_CODE.get(code, Outcome.UNKNOWN)
    if outcome in (Outcome.MALFORMED, Outcome.UNKNOWN):
        for part, meaning in _BY_TEXT:
            if part in text:
                return meaning
    return outcome


def is_answer_to(error: ClientError, operation: str) -> bool:
    """Return whether an error is SQS's answer to an operation or its batch form.

    boto3 renews credentials within the call that needs them. An error of the renewal, such as
    `AssumeRoleWithWebIdentity`, is then raised instead of SQS's answer.
    """
    return str(error.operation_name).removesuffix("Batch") == operation.removesuffix("Batch")


def of_exception(error: BaseException, operation: str) -> Outcome:
    """Return the outcome for each entry of a call that failed as a whole.

    Args:
        operation: The action that was called, by its name in the SQS API reference.
    """
    if isinstance(error, ClientError):
        if not is_answer_to(error, operation):
            return Outcome.FAILED
        outcome = of_error(error.response.get("Error", {}))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        status = status if isinstance(status, int) else 0
        if status == 429 or status == 503:
            return Outcome.THROTTLED
        # The server may have done the work before it failed.
        if status == 500:
            return Outcome.UNSURE
        # Higher codes come from a proxy in front of the server, which may still be working.
        return Outcome.UNKNOWN if status > 500 else outcome
    if isinstance(error, ParamValidationError):
        return Outcome.MALFORMED
    if isinstance(error, _NOT_SENT):
        return Outcome.FAILED
    return Outcome.UNKNOWN


def is_expected(error: BaseException) -> bool:
    """Return whether the error is one that SQS or the network may cause."""
    return isinstance(error, (ClientError, BotoCoreError, OSError))

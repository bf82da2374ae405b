"""Interprets SQS's answers and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ParamValidationError,
)

from celery_sqs_heartbeat.cli.queues.queue_facts import Answer, Tried
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.sqs import adapter

_ARN = re.compile(r"arn:aws[\w-]*:sqs:[\w-]*:(\d{12}):")
#: The codes of SQS's errors and of AWS's common errors that concern the caller's credentials.
_OF_CREDENTIALS = frozenset(
    (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)


def of_payload(payload: Mapping[str, Any], asked_at: float, answered_at: float) -> Answer:
    """Return the answer for a call that succeeded. Times are Unix seconds."""
    skew = _skew(payload, asked_at, answered_at)
    return Answer(tried=Tried.ALLOWED, payload=payload, skew=skew)


def of_error(
    error: Exception, operation: str, endpoint: str, asked_at: float, answered_at: float
) -> Answer:
    """Return the answer for an error, without its text, which may quote a signature.

    Args:
        operation: The action that was called, by its name in the SQS API reference.
    """
    if isinstance(error, ClientError):
        code = _code(error.response.get("Error") or {})
        skew = _skew(error.response, asked_at, answered_at)
        if not adapter.is_answer_to(error, operation):
            reason = f"{error.operation_name}: {code}"
            return Answer(tried=Tried.CREDENTIALS, reason=reason, skew=skew)
        tried = _tried(error, operation, code)
        payload = _account_of(error) if tried is Tried.DENIED else {}
        return Answer(tried=tried, reason=code, payload=payload, skew=skew)
    name = type(error).__name__
    if isinstance(error, adapter.NO_CREDENTIALS):
        return Answer(tried=Tried.CREDENTIALS, reason=name)
    if isinstance(error, (BotoCoreError, OSError)) and not isinstance(error, ParamValidationError):
        reason = f"{name} at {endpoint}" if endpoint else name
        return Answer(tried=Tried.UNREACHABLE, reason=reason)
    return Answer(tried=Tried.REFUSED, reason=name)


def whether_permitted(answer: Answer) -> Answer:
    """Return whether a call that can't succeed was permitted."""
    failed: Any = answer.payload.get("Failed") or ()
    found = [adapter.of_error(entry) for entry in failed]
    if Outcome.DENIED in found:
        return Answer(tried=Tried.DENIED, reason=_code(failed[0]), skew=answer.skew)
    if answer.reason in ("InvalidParameterValue", "ReadCountOutOfRange"):
        return Answer(tried=Tried.ALLOWED, skew=answer.skew)
    return Answer(tried=answer.tried, reason=answer.reason, skew=answer.skew)


def _tried(error: ClientError, operation: str, code: str) -> Tried:
    if code in _OF_CREDENTIALS:
        return Tried.CREDENTIALS
    if code in ("NonExistentQueue", "QueueDoesNotExist"):
        return Tried.NO_QUEUE
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    outcome = adapter.of_exception(error, operation)
    if outcome is Outcome.DENIED:
        return Tried.DENIED
    if outcome in (Outcome.THROTTLED, Outcome.FAILED) or (status or 0) >= 500:
        return Tried.BUSY
    return Tried.REFUSED


def _account_of(error: ClientError) -> Mapping[str, str]:
    """Return the account in the ARN that a denial names: "on resource: arn:aws:sqs:..."."""
    found = _ARN.search(str((error.response.get("Error") or {}).get("Message")))
    return {} if found is None else {"Account": found[1]}


def _code(error: Mapping[str, Any]) -> str:
    """Return the last part of the error code, because servers prefix it differently."""
    return str(error.get("Code") or "unknown").rsplit(".", 1)[-1].rsplit("#", 1)[-1]


def _skew(answer: Mapping[str, Any], asked_at: float, answered_at: float) -> float | None:
    """Return how many seconds our clock is ahead of the answer's `Date`."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
    return (asked_at + answered_at) / 2 - theirs

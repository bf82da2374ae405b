"""The AWS JSON protocol, which boto3 and kombu use with SQS."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from celery_sqs_heartbeat.testing.blobs import read_blobs, write_blobs
from celery_sqs_heartbeat.testing.errors import SqsError, missing
from celery_sqs_heartbeat.testing.operations import check_operation

#: Error shapes whose names differ from the last part of the query protocol's code
#: (botocore's model of SQS, and AWS's answers as LocalStack recorded them).
_SHAPES = {
    "AccessDenied": "AccessDeniedException",
    "InvalidAction": "UnknownOperationException",
    "InvalidParameterValue": "InvalidParameterValueException",
    "MissingParameter": "MissingRequiredParameterException",
    "NonExistentQueue": "QueueDoesNotExist",
    "QueueAlreadyExists": "QueueNameExists",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, JSON body and further headers of one answer."""

    status: int
    payload: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


def decode(target: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the operation and its request, checked against botocore's model of SQS.

    Args:
        target: The header `X-Amz-Target`.

    Raises:
        SqsError: It is not a valid request.
    """
    service, _, operation = target.rpartition(".")
    if service != "AmazonSQS":
        raise SqsError(
            "InvalidAction",
            f"The header X-Amz-Target must be AmazonSQS.<operation>, not {target!r}: use boto3 "
            "1.34 or later, which speaks this protocol",
        )
    check_operation(operation)
    try:
        request = json.loads(content or b"{}")
    except ValueError as error:
        raise SqsError("SerializationException", f"The body is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise SqsError("SerializationException", "The body is not a JSON object.")
    shape = _input_shape(operation)
    # SQS ignores members that it does not know.
    request = {name: value for name, value in request.items() if name in shape.members}
    for name in shape.required_members:
        if name not in request:
            raise missing(name)
    faults = ParamValidator().validate(request, shape)
    if faults.has_errors():
        raise SqsError("SerializationException", faults.generate_report())
    return operation, {
        name: read_blobs(shape.members[name], each) for name, each in request.items()
    }


def reply_to(answer: Mapping[str, Any], *, inner_url: str, outer_url: str) -> Reply:
    """Return the reply to a successful call.

    Queue URLs begin with `inner_url` in the answer and with `outer_url` in the reply.
    """
    payload = write_blobs(answer)
    if "QueueUrl" in payload:
        payload["QueueUrl"] = payload["QueueUrl"].replace(inner_url, outer_url, 1)
    if "QueueUrls" in payload:
        payload["QueueUrls"] = [u.replace(inner_url, outer_url, 1) for u in payload["QueueUrls"]]
    return Reply(200, payload)


def reply_to_error(error: SqsError) -> Reply:
    """Return the reply to a refused call.

    boto3 shows the header's code, and keeps the shape's name as `QueryErrorCode`.
    """
    last = error.code.rsplit(".", 1)[-1]
    fault = "Sender" if error.sender_fault else "Receiver"
    return Reply(
        error.status,
        {"__type": f"com.amazonaws.sqs#{_SHAPES.get(last, last)}", "message": error.text},
        {"x-amzn-query-error": f"{error.code};{fault}"},
    )


@functools.cache
def _service_model() -> Any:
    return botocore.session.Session().get_service_model("sqs")


@functools.cache
def _input_shape(operation: str) -> Any:
    return _service_model().operation_model(operation).input_shape

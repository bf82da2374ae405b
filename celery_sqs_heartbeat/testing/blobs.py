"""Binary values in the AWS JSON protocol: base64 on the wire, bytes in the simulation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing.errors import SqsError


def read_blobs(shape: Any, value: Any) -> Any:
    """Return a part of a request with bytes for each blob.

    Args:
        shape: The shape of that part in botocore's model.

    Raises:
        SqsError: A blob is no base64.
    """
    kind = shape.type_name
    if kind == "blob":
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise SqsError("SerializationException", f"A blob is no base64: {error}") from None
    if kind == "structure":
        members = shape.members
        return {name: read_blobs(members[name], each) for name, each in value.items()}
    if kind == "map":
        return {name: read_blobs(shape.value, each) for name, each in value.items()}
    if kind == "list":
        return [read_blobs(shape.member, each) for each in value]
    return value


def write_blobs(value: Any) -> Any:
    """Return an answer with base64 in place of bytes."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: write_blobs(each) for name, each in value.items()}
    if isinstance(value, list):
        return [write_blobs(each) for each in value]
    return value

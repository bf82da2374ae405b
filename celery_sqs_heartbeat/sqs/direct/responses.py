"""Reads the answer to a direct call as boto3 does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.endpoint import convert_to_response_dict
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

#: SQS's protocol.
_PROTOCOL = "json"
#: A call of an operation without results has one of these answers.
_EMPTY = (b"", b"{}")


def read_response(response: Any, find_operation: Callable[[], Any]) -> Any:
    """Return the answer to a call.

    An answer that is empty, or confirms entries and nothing else, is read here. boto3's parser,
    which takes longer, reads all others.

    Args:
        response: botocore's response.
        find_operation: Returns botocore's model of the operation.

    Raises:
        ClientError: SQS refused the call.
        ResponseParserError: The answer has no meaning to boto3.
    """
    if response.status_code == 200 and (answer := _plain(response.content)) is not None:
        return answer
    operation = find_operation()
    parsed = create_parser(_PROTOCOL).parse(
        convert_to_response_dict(response, operation), operation.output_shape
    )
    if response.status_code >= 300:
        raise ClientError(parsed, operation.name)
    return parsed


def _plain(body: bytes) -> dict[str, Any] | None:
    """Return an answer that is empty or only confirms entries; None for any other."""
    if body in _EMPTY:
        return {}
    try:
        answer = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or answer.get("Failed", []) != []:
        return None
    successful = answer.get("Successful")
    if not isinstance(successful, list):
        return None
    is_plain = all(
        isinstance(each, dict) and isinstance(each.get("Id"), str) for each in successful
    )
    return answer if is_plain else None

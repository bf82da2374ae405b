"""The attributes that SQS accepts in a message.

The rules come from the SQS Developer Guide, "Message metadata". It does not say how AWS refuses.
The codes and texts are AWS's answers to LocalStack's test suite, or from public reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing import characters, errors

_MOST = 10
#: The longest name, and the longest type with its label, in characters.
_LONGEST = 256
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_RESERVED = ("aws.", "amazon.")
#: A logical type, and a label that SQS keeps but does not interpret.
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: SQS API reference, SendMessage, MessageSystemAttributes.
_SYSTEM = "AWSTraceHeader"


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Refuse the attributes of a message that SQS refuses.

    Raises:
        SqsError: They are too many, or a name, a type or a value is wrong.
    """
    if len(attributes) > _MOST:
        raise errors.invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{_MOST}]."
        )
    for name, value in attributes.items():
        _check_name(name)
        _check_value(f"(user) attribute '{name}'", value)


def check_system_attributes(attributes: Mapping[str, Any]) -> None:
    """Refuse system attributes of a message that SQS refuses.

    Raises:
        SqsError: One is not a trace header, or is not a string.
    """
    for name, value in attributes.items():
        if name != _SYSTEM:
            raise errors.invalid(f"Message system attribute name '{name}' is invalid.")
        if value.get("DataType") != "String":
            raise errors.invalid(f"The type of message system attribute '{name}' must be String.")
        _check_value(f"system attribute '{name}'", value)


def size_of(attributes: Mapping[str, Any]) -> int:
    """Return their size in bytes, as it counts for the limit: names, types and values."""
    return sum(
        characters.size_of(name)
        + characters.size_of(str(value.get("DataType")))
        + characters.size_of(value.get("StringValue") or value.get("BinaryValue") or "")
        for name, value in attributes.items()
    )


def _check_name(name: str) -> None:
    if not name:
        raise errors.invalid("The request must contain non-empty message (user) attribute names.")
    if len(name) > _LONGEST:
        raise errors.invalid("Message (user) attribute name must be shorter than 256 bytes.")
    if not _NAME.fullmatch(name):
        raise errors.invalid(
            "Message (user) attributes name can only contain upper and lower score characters, "
            "digits, periods, hyphens and underscores."
        )
    if name.lower().startswith(_RESERVED):
        raise errors.invalid(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
            "strings are reserved for internal use."
        )
    for is_wrong, text in (
        (name.startswith("."), "begin with character '.'"),
        (name.endswith("."), "end with character '.'"),
        (".." in name, "have successive '.' characters"),
    ):
        if is_wrong:
            raise errors.invalid(f"Message (user) attribute name must not {text}.")


def _check_value(what: str, value: Mapping[str, Any]) -> None:
    data_type = value.get("DataType")
    if not data_type:
        raise errors.invalid(f"The message {what} must contain a non-empty message attribute type.")
    logical = _TYPE.fullmatch(data_type)
    if logical is None:
        raise errors.invalid(
            f"The type of message {what} is invalid. You must use only the following supported "
            "type prefixes: Binary, Number, String."
        )
    if len(data_type) > _LONGEST:
        raise errors.invalid(f"The type of message {what} must be shorter than 256 bytes.")
    if value.get("StringListValues") or value.get("BinaryListValues"):
        raise errors.unsupported(
            "Message attribute list values in SendMessage operation are not supported."
        )
    used, unused = "StringValue", "BinaryValue"
    if logical[1] == "Binary":
        used, unused = unused, used
    if value.get(unused) is not None:
        field = used.removesuffix("Value")
        raise errors.invalid(f"Message {what} with type '{data_type}' must use field '{field}'.")
    data = value.get(used)
    if not data:
        raise errors.invalid(
            f"Message {what} must contain a non-empty value of type '{data_type}'."
        )
    texts = (data_type,) if used == "BinaryValue" else (data_type, data)
    if not all(map(characters.are_allowed, texts)):
        raise errors.invalid(characters.REFUSAL)
    if logical[1] == "Number" and not _NUMBER.fullmatch(data):
        raise errors.invalid(f"Can't cast the value of message {what} to a number.")

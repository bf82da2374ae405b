"""The message that tells a keeper how to reach a queue: its client's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from botocore import UNSIGNED

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.link.frames import Message
from celery_sqs_heartbeat.sqs.clients import BrokerConfig

#: Marks values that JSON does not have.
_MARK = "$"


def reach(config: BrokerConfig, queue_url: str, threshold: float, address: str) -> Message:
    """Return the message that tells the keeper how to reach a queue.

    Raises:
        ConfigurationError: A transport option cannot be sent to another process.
    """
    plain = {
        field.name: to_plain(getattr(config, field.name), field.name)
        for field in fields(BrokerConfig)
    }
    return ("reach", queue_url, threshold, address, plain)


def read_config(plain: Mapping[str, Any]) -> BrokerConfig:
    """Return the configuration of such a message."""
    return BrokerConfig(**{name: from_plain(value) for name, value in plain.items()})


def to_plain(value: Any, where: str) -> Any:
    """Return a value in a form that JSON can hold.

    Args:
        where: The option that contains the value, for the error.

    Raises:
        ConfigurationError: The value, or a part of it, has another type.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if value is UNSIGNED:
        return {_MARK: "unsigned"}
    if isinstance(value, tuple):
        return {_MARK: [to_plain(each, where) for each in value]}
    if isinstance(value, list):
        return [to_plain(each, where) for each in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    raise ConfigurationError(
        [
            # Without the value: it may contain a secret key.
            f"broker_transport_options: {where} has the type {type(value).__name__}, which cannot "
            "be sent to the keeper's process: use strings, numbers, lists and dicts"
        ]
    )


def from_plain(value: Any) -> Any:
    """Return the value from which `to_plain` made a plain one."""
    if isinstance(value, list):
        return [from_plain(each) for each in value]
    if isinstance(value, dict):
        if _MARK in value:
            marked = value[_MARK]
            return UNSIGNED if marked == "unsigned" else tuple(map(from_plain, marked))
        return {key: from_plain(each) for key, each in value.items()}
    return value

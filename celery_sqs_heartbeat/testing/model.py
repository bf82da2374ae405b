"""What botocore's model says of SQS: its operations, their parameters, the names of attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import botocore.session

from celery_sqs_heartbeat.testing.errors import unknown_attribute

#: Names of enumerations in the model.
OF_QUEUES, OF_MESSAGES = "QueueAttributeName", "MessageSystemAttributeName"


@functools.cache
def _service() -> Any:
    return botocore.session.Session().get_service_model("sqs")


@functools.cache
def operations() -> list[str]:
    """Return the names of all operations."""
    return sorted(_service().operation_names)


@functools.cache
def input_shape(operation: str) -> Any:
    """Return the shape of an operation's parameters."""
    return _service().operation_model(operation).input_shape


@functools.cache
def _names(*enumerations: str) -> frozenset[str]:
    # AWS also accepts "ALL", and kombu sends it.
    return frozenset(("ALL",)).union(*(_service().shape_for(each).enum for each in enumerations))


def check_names(names: Iterable[str], *enumerations: str) -> None:
    """Check that the attributes that a request names exist.

    Raises:
        SqsError: One of them does not.
    """
    for name in names:
        if name not in _names(*enumerations):
            raise unknown_attribute(name)

"""Keeps a Celery worker's SQS messages until their deletes are confirmed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_sqs_heartbeat.consumer.lease_keeper import LeaseKeeper
    from celery_sqs_heartbeat.consumer.received import Message
    from celery_sqs_heartbeat.current.current_lease import current_lease
    from celery_sqs_heartbeat.current.current_message import ReleaseMessage
    from celery_sqs_heartbeat.errors import (
        AlreadyHeld,
        ConfigurationError,
        LeaseLost,
        NoLease,
        SqsHeartbeatError,
    )
    from celery_sqs_heartbeat.settings.release_delay import ExponentialDelay, QueueInfo
    from celery_sqs_heartbeat.worker.step import install

__all__ = [
    "AlreadyHeld",
    "ConfigurationError",
    "ExponentialDelay",
    "LeaseKeeper",
    "LeaseLost",
    "Message",
    "NoLease",
    "QueueInfo",
    "ReleaseMessage",
    "SqsHeartbeatError",
    "current_lease",
    "install",
]
__version__ = "0.1.0"

#: The module of each public name. It is loaded on first use, so importing the pure core
#: imports neither boto3 nor Celery.
_HOME = {
    "AlreadyHeld": "errors",
    "ConfigurationError": "errors",
    "ExponentialDelay": "settings.release_delay",
    "LeaseKeeper": "consumer.lease_keeper",
    "LeaseLost": "errors",
    "Message": "consumer.received",
    "NoLease": "errors",
    "QueueInfo": "settings.release_delay",
    "ReleaseMessage": "current.current_message",
    "SqsHeartbeatError": "errors",
    "current_lease": "current.current_lease",
    "install": "worker.step",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)

"""Our changes to the options of kombu's transport, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.sqs.options import TIMEOUTS

#: System attributes of a message that the keeper reads.
REPORTED = (
    "ApproximateReceiveCount",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    # SQS omits attributes that a message does not have.
    "MessageGroupId",
    "SequenceNumber",
)
#: The timeout of a call if `client-config` says None, in seconds: botocore's default.
CLIENT_SECONDS = 60


def with_timeouts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with a `client-config` that has a timeout for every call.

    Without an event loop, a poll has no other deadline. If SQS never answered it, its queue would
    not be polled again.
    """
    config = options.get("client-config") or {}
    endless = [name for name in TIMEOUTS if config.get(name, CLIENT_SECONDS) is None]
    if not endless:
        return options
    return {**options, "client-config": {**config, **dict.fromkeys(endless, CLIENT_SECONDS)}}


def with_reported(attributes: Any) -> Any:
    """Return the attributes to request with each message: the user's, and those that we report.

    Args:
        attributes: The option `fetch_message_attributes`: a list of names, or a dict of lists.
    """
    if isinstance(attributes, dict):
        system = attributes.get("MessageSystemAttributeNames") or []
        return {**attributes, "MessageSystemAttributeNames": _added_to(system)}
    return _added_to(attributes if isinstance(attributes, list) else [])


def _added_to(names: Any) -> Any:
    return list(dict.fromkeys([*names, *REPORTED])) if isinstance(names, list) else names

"""What we change of the options of kombu's transport. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.sqs.options import TIMEOUTS

#: System attributes of a message that the keeper reads.
REPORTED = (
    "ApproximateReceiveCount",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    # Not with every message: SQS leaves out what a message does not have.
    "MessageGroupId",
    "SequenceNumber",
)
#: For how long a call waits where `client-config` says None, in seconds: botocore's default.
CLIENT_SECONDS = 60


def with_timeouts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with a `client-config` that sets no call free of timeouts.

    Without an event loop a poll has no other deadline: one that is never answered would be
    the queue's last.
    """
    config = options.get("client-config") or {}
    endless = [name for name in TIMEOUTS if config.get(name, CLIENT_SECONDS) is None]
    if not endless:
        return options
    return {**options, "client-config": {**config, **dict.fromkeys(endless, CLIENT_SECONDS)}}


def with_reported(attributes: Any) -> Any:
    """Return what is asked for with each message: what the user wants, and what we report.

    Args:
        attributes: The option `fetch_message_attributes`: a list of names, or a dict of lists.
    """
    if isinstance(attributes, dict):
        system = attributes.get("MessageSystemAttributeNames") or []
        return {**attributes, "MessageSystemAttributeNames": _added_to(system)}
    return _added_to(attributes if isinstance(attributes, list) else [])


def _added_to(names: Any) -> Any:
    return list(dict.fromkeys([*names, *REPORTED])) if isinstance(names, list) else names

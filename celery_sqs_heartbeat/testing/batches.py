"""The rules of SQS's batch calls: for the call as a whole, and for each entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from celery_sqs_heartbeat.leases.service import SQS
from celery_sqs_heartbeat.testing.errors import SqsError, internal, throttled
from celery_sqs_heartbeat.testing.faults import Faults

#: SQS API reference, "Id" of any batch request entry.
_VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PREFIX = "AWS.SimpleQueueService."


def check_batch(entries: Any) -> None:
    """Refuse a batch that SQS refuses as a whole.

    Raises:
        SqsError: It is empty, too long, or its ids are invalid or equal.
    """
    if not entries:
        raise SqsError(_PREFIX + "EmptyBatchRequest", "There should be at least one entry.")
    if len(entries) > SQS.most_changed:
        raise SqsError(
            _PREFIX + "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are 10. You have sent {len(entries)}.",
        )
    ids = [entry.get("Id") for entry in entries]
    if not all(isinstance(each, str) and _VALID_ID.fullmatch(each) for each in ids):
        raise SqsError(
            _PREFIX + "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and "
            "underscores. It can be at most 80 letters long.",
        )
    if len(set(ids)) != len(ids):
        raise SqsError(_PREFIX + "BatchEntryIdsNotDistinct", "Two or more entries have one id.")


def answer_batch(
    entries: Any,
    do: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    faults: Faults,
    operation: str,
) -> dict[str, Any]:
    """Do each entry and return the answer of the batch.

    Args:
        do: Does one entry; returns the fields of its success, without the id. If it raises an
            `SqsError`, only that entry fails.
    """
    check_batch(entries)
    fault = faults.of(operation)
    successful: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            if faults.happens(fault.entry_throttled):
                raise throttled()
            if faults.happens(fault.entry_failed):
                raise internal()
            successful.append({"Id": entry["Id"], **do(entry)})
        except SqsError as error:
            failed.append(error.as_entry(entry["Id"]))
    answer: dict[str, Any] = {"Successful": successful}
    if failed:
        answer["Failed"] = failed
    return answer

"""Makes the keeper's calls, and reads the answer for each entry."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Outcome
from celery_sqs_heartbeat.sqs.outcomes import is_expected, of_error, of_exception
from celery_sqs_heartbeat.sqs.prepared_requests import make_call
from celery_sqs_heartbeat.sqs.sending import guard, prepared

logger = get_logger(__name__)

#: SQS's default for a queue, in seconds (SQS API reference, SetQueueAttributes).
DEFAULT_VISIBILITY_TIMEOUT = 30


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """The attributes of a queue.

    Attributes:
        visibility_timeout: The queue's own default, in seconds.
        max_receive_count: After how many receives SQS moves a message to the
            dead-letter queue; None without a redrive policy.
        is_known: False if the attributes could not be read and are assumed.
        arn: Identifies the queue, even if it has several URLs; None if unknown.
    """

    visibility_timeout: int = DEFAULT_VISIBILITY_TIMEOUT
    max_receive_count: int | None = None
    is_known: bool = True
    arn: str | None = None


class BotoSqs:
    """Calls SQS with boto3.

    Args:
        client: A boto3 SQS client, or a function that returns the client for a queue URL.
            Several threads may use a client at the same time. Give it short timeouts and
            no retries (`short_config`), because the keeper repeats calls itself. It is guarded
            (`sending.guard`).
        address: Returns the URL at which a queue is reached now, if that may change.
    """

    def __init__(
        self,
        client: Any | Callable[[str], Any],
        address: Callable[[str], str] = lambda queue_url: queue_url,
    ) -> None:
        self._client = client
        self._address = address
        self._reason = ""

    def client_for(self, queue_url: str) -> Any:
        """Return the client for a queue.

        Raises:
            Exception: Any error of the function that returns the client.
        """
        client = self._client(queue_url) if callable(self._client) else self._client
        guard(client)
        return client

    def send(self, call: Call) -> Sequence[Outcome]:
        """Make a batch call. Errors of SQS or the network become outcomes."""
        try:
            try:
                client = prepared(partial(self.client_for, call.queue_url))
            except ConfigurationError as error:
                return self._not_sent(call, error)
            self._reason = ""
            answer = self._make(client, call)
        except Exception as error:
            if not is_expected(error):
                raise
            shown = _without_handles(repr(error), call)
            logger.info("sqs-heartbeat: %s on %s: %s", call.kind.value, call.queue_url, shown)
            return [of_exception(error, call.kind.value)] * len(call.entries)
        return read_answer(answer, len(call.entries))

    def _make(self, client: Any, call: Call) -> Any:
        entries: list[dict[str, Any]] = [
            {"Id": str(index), "ReceiptHandle": entry.receipt_handle}
            for index, entry in enumerate(call.entries)
        ]
        params = {"QueueUrl": self._address(call.queue_url), "Entries": entries}
        if call.kind is CallKind.CHANGE_VISIBILITY:
            for item, entry in zip(entries, call.entries, strict=True):
                item["VisibilityTimeout"] = entry.timeout
        return make_call(client, f"{call.kind.value}Batch", params)

    def _not_sent(self, call: Call, error: ConfigurationError) -> Sequence[Outcome]:
        """Log why a call is not made. Log it again only for another reason, or after a call."""
        reason = "; ".join(error.faults)
        if reason != self._reason:
            self._reason = reason
            logger.error(
                "sqs-heartbeat: no %s on %s: %s; it is tried again",
                call.kind.value,
                call.queue_url,
                reason,
            )
        return [Outcome.FAILED] * len(call.entries)

    def send_message(self, queue_url: str, content: Mapping[str, Any], **options: Any) -> str:
        """Send a message to its queue again, and return its new id.

        Args:
            content: See `content_of`.
            options: Further parameters of the call.

        Raises:
            Exception: Any error of boto3. The message may have been sent.
        """
        attributes = {
            name: {**each, "BinaryValue": base64.b64decode(each["BinaryValue"])}
            if "BinaryValue" in each
            else each
            for name, each in content["MessageAttributes"].items()
        }
        sent = self.client_for(queue_url).send_message(
            QueueUrl=self._address(queue_url),
            MessageBody=content["MessageBody"],
            MessageAttributes=attributes,
            **options,
        )
        return str(sent["MessageId"])

    def queue_attributes(self, queue_url: str) -> QueueAttributes:
        """Read a queue's attributes.

        Raises:
            Exception: Any error of boto3.
        """
        answer = self.client_for(queue_url).get_queue_attributes(
            QueueUrl=self._address(queue_url),
            AttributeNames=["VisibilityTimeout", "RedrivePolicy", "QueueArn"],
        )
        return read_attributes(answer.get("Attributes") or {})


def _without_handles(text: str, call: Call) -> str:
    """Remove receipt handles, because SQS and boto3 quote what they refuse."""
    for entry in call.entries:
        if entry.receipt_handle:
            text = text.replace(entry.receipt_handle, "...")
    return text


def read_answer(answer: Any, count: int) -> list[Outcome]:
    """Return the outcomes of a batch of `count` entries whose ids are "0", "1", ...

    An entry that the answer does not mention, or only in an unknown form, is UNKNOWN.
    """
    outcomes = [Outcome.UNKNOWN] * count
    indexes = {str(index): index for index in range(count)}
    for failed in _dicts(answer, "Failed"):
        if (index := _index(failed, indexes)) is not None:
            outcomes[index] = of_error(failed)
    for successful in _dicts(answer, "Successful"):
        if (index := _index(successful, indexes)) is not None:
            outcomes[index] = Outcome.DONE
    return outcomes


def read_attributes(attributes: Mapping[str, Any]) -> QueueAttributes:
    """Return the attributes from the strings that SQS returns."""
    try:
        timeout = int(attributes["VisibilityTimeout"])
    except (KeyError, TypeError, ValueError, OverflowError):
        timeout = DEFAULT_VISIBILITY_TIMEOUT
    try:
        max_receives = int(json.loads(attributes["RedrivePolicy"])["maxReceiveCount"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        max_receives = None
    arn = attributes.get("QueueArn")
    return QueueAttributes(timeout, max_receives, arn=arn if isinstance(arn, str) else None)


def _dicts(answer: Any, key: str) -> list[Mapping[str, Any]]:
    items = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(items, list):
        return []
    # `dict` first, because a check for `Mapping` takes long.
    return [item for item in items if isinstance(item, (dict, Mapping))]


def _index(item: Mapping[str, Any], indexes: Mapping[str, int]) -> int | None:
    identity = item.get("Id")
    return indexes.get(identity) if isinstance(identity, str) else None

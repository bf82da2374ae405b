"""The boundary to SQS: makes a keeper's calls with boto3, and reads the answers.

A keeper receives, and makes the calls that its book has planned. It knows neither clients nor the
parameters and errors of SQS.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore import exceptions

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.events import Call, CallKind, Outcome
from celery_sqs_heartbeat.sqs.sending import make_call, sending_while

logger = get_logger(__name__)

#: SQS's default for a queue, in seconds (SQS API reference, SetQueueAttributes).
DEFAULT_VISIBILITY_TIMEOUT = 30

#: The error codes of the SQS API reference ("Common errors" and the errors of
#: ChangeMessageVisibility, DeleteMessage and their batch forms), by their last
#: dotted segment: JSON and query protocol, and other servers, prefix them differently.
_CODES = {
    Outcome.LOST: "ReceiptHandleIsInvalid MessageNotInflight",
    # SQS returns these for a queue that is gone, and for one that a policy hides from us.
    Outcome.NO_QUEUE: "QueueDoesNotExist NonExistentQueue",
    Outcome.THROTTLED: "RequestThrottled Throttling ThrottlingException ThrottledException "
    "TooManyRequestsException RequestLimitExceeded OverLimit KmsThrottled SlowDown "
    "PriorRequestNotComplete",
    Outcome.DENIED: "AccessDenied AccessDeniedException UnauthorizedOperation NotAuthorized "
    "KmsAccessDenied OptInRequired",
    Outcome.MALFORMED: "InvalidParameterValue InvalidParameterCombination InvalidAttributeValue "
    "InvalidAddress InvalidIdFormat InvalidBatchEntryId InvalidQueryParameter "
    "BatchEntryIdsNotDistinct EmptyBatchRequest TooManyEntriesInBatchRequest MissingParameter "
    "MalformedInput MalformedQueryString SerializationException ValidationError "
    "ValidationException UnsupportedOperation",
    # The credentials are being replaced, or a clock is wrong. Both are usually temporary. If not,
    # the worker can't work at all, and kombu reports it.
    Outcome.FAILED: "AuthFailure InvalidAccessKeyId InvalidClientTokenId InvalidSecurity "
    "InvalidSignatureException MissingAuthenticationToken SignatureDoesNotMatch "
    "UnrecognizedClientException ExpiredToken ExpiredTokenException RequestExpired "
    "RequestTimeTooSkewed InternalError InternalFailure ServiceUnavailable",
}
_BY_CODE = {code: outcome for outcome, codes in _CODES.items() for code in codes.split()}

#: Refusals that share the code InvalidParameterValue and differ by their text, in
#: lower case. The first means the 12-hour limit, the others an expired or stale handle.
_BY_TEXT = (
    ("beyond the limit", Outcome.CAPPED),
    ("does not exist or is not available", Outcome.LOST),
    ("receipt handle has expired", Outcome.LOST),
    ("receipthandle is invalid", Outcome.LOST),
    ("not a valid receipt handle", Outcome.LOST),
)

#: There are no credentials to sign a call with.
NO_CREDENTIALS = (
    exceptions.CredentialRetrievalError,
    exceptions.MetadataRetrievalError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
)
#: Nothing was sent.
_NOT_SENT = (*NO_CREDENTIALS, exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)


def of_error(error: Mapping[str, Any]) -> Outcome:
    """Return the outcome for a `Code` and `Message` pair. Unknown codes mean UNKNOWN."""
    code = str(error.get("Code") or "").rsplit(".", 1)[-1].rsplit("#", 1)[-1]
    text = str(error.get("Message") or "").lower()
    outcome = _BY_CODE.get(code, Outcome.UNKNOWN)
    if outcome in (Outcome.MALFORMED, Outcome.UNKNOWN):
        for part, meaning in _BY_TEXT:
            if part in text:
                return meaning
    return outcome


def is_answer_to(error: exceptions.ClientError, operation: str) -> bool:
    """Return whether an error is SQS's answer to an operation or its batch form.

    boto3 renews credentials within the call that needs them. An error of the renewal, such as
    `AssumeRoleWithWebIdentity`, is then raised instead of SQS's answer.
    """
    return str(error.operation_name).removesuffix("Batch") == operation.removesuffix("Batch")


def of_exception(error: BaseException, operation: str) -> Outcome:
    """Return the outcome for each entry of a call that failed as a whole.

    Args:
        operation: The action that was called, by its name in the SQS API reference.
    """
    if isinstance(error, exceptions.ClientError):
        if not is_answer_to(error, operation):
            return Outcome.FAILED
        outcome = of_error(error.response.get("Error", {}))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        status = status if isinstance(status, int) else 0
        if status == 429 or status == 503:
            return Outcome.THROTTLED
        # The server may have done the work before it failed.
        if status == 500:
            return Outcome.UNSURE
        # Higher codes come from a proxy in front of the server, which may still be working.
        return Outcome.UNKNOWN if status > 500 else outcome
    if isinstance(error, exceptions.ParamValidationError):
        return Outcome.MALFORMED
    if isinstance(error, _NOT_SENT):
        return Outcome.FAILED
    return Outcome.UNKNOWN


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
            no retries (`short_config`), because the keeper repeats calls itself.
        polls: The same for receives, with timeouts that are longer than their waits. None for a
            keeper that does not receive.
        address: Returns the URL at which a queue is reached now, if that may change.
    """

    def __init__(
        self,
        client: Any | Callable[[str], Any],
        polls: Any | Callable[[str], Any] = None,
        address: Callable[[str], str] = lambda queue_url: queue_url,
    ) -> None:
        self._client = client if callable(client) else lambda queue_url: client
        self._polls = polls if callable(polls) else lambda queue_url: polls
        self._address = address
        self._reason = ""

    def receive(
        self,
        queue_url: str,
        *,
        count: int,
        wait: int,
        timeout: int | None,
        attributes: Mapping[str, Sequence[str]],
        may_send: Callable[[], bool] = lambda: True,
    ) -> Sequence[Any]:
        """Wait for messages, and return those of the answer, whatever they are.

        Args:
            queue_url: Where the queue is reached now.
            count: The most messages to return.
            wait: How long to wait for the first, in seconds.
            timeout: The visibility timeout to request, in seconds; None to request none.
            attributes: What to return with each message: further parameters of the call.
            may_send: See `send`.

        Raises:
            CallGivenUp: It may not be sent.
            Exception: Any error of boto3, or of the function that returns the client.
        """
        params: dict[str, Any] = {
            "QueueUrl": queue_url,
            "MaxNumberOfMessages": count,
            "WaitTimeSeconds": wait,
            **attributes,
        }
        if timeout is not None:
            params["VisibilityTimeout"] = timeout
        client = self._polls(queue_url)
        with sending_while(client, may_send):
            answer = make_call(client, "ReceiveMessage", params)
        return _items(answer, "Messages")

    def send(self, call: Call, may_send: Callable[[], bool] = lambda: True) -> Sequence[Outcome]:
        """Make a batch call. Errors of SQS or the network become outcomes.

        Args:
            may_send: Is called on this thread right before the call is sent, and returns whether
                it may be.
        """
        try:
            answer = self._make(call, may_send)
        except ConfigurationError as error:
            return self._not_sent(call, error)
        except (exceptions.ClientError, exceptions.BotoCoreError, OSError) as error:
            shown = _without_handles(repr(error), call)
            logger.info("sqs-heartbeat: %s on %s: %s", call.kind.value, call.queue_url, shown)
            return [of_exception(error, call.kind.value)] * len(call.entries)
        return read_answer(answer, len(call.entries))

    def _make(self, call: Call, may_send: Callable[[], bool]) -> Any:
        client = self._client(call.queue_url)
        self._reason = ""
        entries: list[dict[str, Any]] = [
            {"Id": str(index), "ReceiptHandle": entry.receipt_handle}
            for index, entry in enumerate(call.entries)
        ]
        params = {"QueueUrl": self._address(call.queue_url), "Entries": entries}
        if call.kind is CallKind.CHANGE_VISIBILITY:
            for item, entry in zip(entries, call.entries, strict=True):
                item["VisibilityTimeout"] = entry.timeout
        with sending_while(client, may_send):
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
        sent = self._client(queue_url).send_message(
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
        answer = self._client(queue_url).get_queue_attributes(
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
    outcomes = dict.fromkeys(map(str, range(count)), Outcome.UNKNOWN)
    for kind, meaning in (("Failed", of_error), ("Successful", lambda entry: Outcome.DONE)):
        for entry in _items(answer, kind):
            index = entry.get("Id") if isinstance(entry, dict) else None
            if isinstance(index, str) and index in outcomes:
                outcomes[index] = meaning(entry)
    return list(outcomes.values())


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


def _items(answer: Any, key: str) -> list[Any]:
    """Return a list of an answer, of whatever shape it is."""
    items = answer.get(key) if isinstance(answer, dict) else None
    return items if isinstance(items, list) else []

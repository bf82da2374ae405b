"""SQS's answers about queues, as plain values, and the calls that ask for them.

The calls change nothing, and errors become answers.
"""

from __future__ import annotations

import enum
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from celery_sqs_heartbeat.cli.broker import Broker
from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.sqs import adapter
from celery_sqs_heartbeat.sqs.clients import new_client

#: A threshold that gives each call five seconds (`short_config`), because no lease depends on it.
_PATIENT = 10.0
#: The account of servers other than AWS.
_NO_ACCOUNT = "000000000000"
#: A receipt handle that no queue ever made.
_NO_HANDLE = {"Id": "0", "ReceiptHandle": "celery-sqs-heartbeat-doctor"}
#: The worker's calls in a form that passes SQS's permission check and then fails, by permission.
_HARMLESS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # A receive must request 1 to 10 messages. If a server accepts 0 and still returns messages,
    # VisibilityTimeout 0 makes them visible again at once.
    "sqs:ReceiveMessage": (
        "ReceiveMessage",
        {"MaxNumberOfMessages": 0, "VisibilityTimeout": 0, "WaitTimeSeconds": 0},
    ),
    "sqs:ChangeMessageVisibility": (
        "ChangeMessageVisibilityBatch",
        {"Entries": [{**_NO_HANDLE, "VisibilityTimeout": 0}]},
    ),
    "sqs:DeleteMessage": ("DeleteMessageBatch", {"Entries": [_NO_HANDLE]}),
}
_ARN = re.compile(r"arn:aws[\w-]*:sqs:[\w-]*:(\d{12}):")
#: The codes of SQS's errors and of AWS's common errors that concern the caller's credentials.
_OF_CREDENTIALS = re.compile(
    "AuthFailure|ExpiredToken(Exception)?|IncompleteSignature|InvalidAccessKeyId"
    "|InvalidClientTokenId|InvalidSecurity|InvalidSignatureException"
    "|MissingAuthenticationToken(Exception)?|RequestExpired|RequestTimeTooSkewed"
    "|SignatureDoesNotMatch|UnrecognizedClientException"
)


class Tried(enum.Enum):
    """The result of a call to SQS."""

    #: SQS did it, or refused it after the permission check.
    ALLOWED = "allowed"
    DENIED = "denied"
    NO_QUEUE = "no queue"
    #: The credentials are missing, wrong or expired.
    CREDENTIALS = "credentials"
    UNREACHABLE = "unreachable"
    #: SQS throttled the call or has an outage.
    BUSY = "busy"
    #: Refused for any other reason.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one call, without secrets.

    Attributes:
        reason: SQS's error code, or the kind of network error.
        skew: How many seconds this machine's clock is ahead of SQS's.
    """

    tried: Tried
    reason: str = ""
    payload: Mapping[str, object] = field(default_factory=dict)
    skew: float | None = None

    @property
    def has_come(self) -> bool:
        """Whether SQS itself answered, as far as can be known."""
        return self.skew is not None or self.tried not in (Tried.UNREACHABLE, Tried.CREDENTIALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """SQS's answers about one queue.

    Attributes:
        name: Celery's name of the queue.
        sqs_name: SQS's name of the queue, if known. kombu adds a prefix, and replaces characters
            that SQS does not accept.
        is_known: Whether the app names the queue, and not only the option -Q.
        found: The answer to the request for its attributes, or for its URL.
        tries: The answers to calls that change nothing, by the permission they need.
        dead_letters: The answer about the dead-letter queue, if a FIFO queue names one.
    """

    name: str
    sqs_name: str | None = None
    url: str | None = None
    is_known: bool = True
    is_predefined: bool = True
    found: Answer = Answer(tried=Tried.ALLOWED)
    attributes: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, Answer] = field(default_factory=dict)
    dead_letters: Answer | None = None

    @property
    def is_answered(self) -> bool:
        """Whether SQS answered every call about the queue, even with a denial."""
        said = (Tried.ALLOWED, Tried.DENIED, Tried.NO_QUEUE)
        return all(each.tried in said for each in (self.found, *self.tries.values()))

    def actions(self, tried: Tried) -> list[str]:
        """Return the permissions whose calls had this result."""
        return [action for action, answer in self.tries.items() if answer.tried is tried]

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue."""
        return is_fifo(self.url or self.name)

    @property
    def own_timeout(self) -> int:
        """Its own visibility timeout, in seconds."""
        return adapter.read_attributes(self.attributes).visibility_timeout

    @property
    def max_receive_count(self) -> int | None:
        """After how many receives a message is a dead letter; None without a redrive policy."""
        return adapter.read_attributes(self.attributes).max_receive_count

    @property
    def in_flight(self) -> int:
        """How many of its messages are in flight."""
        return self.number("ApproximateNumberOfMessagesNotVisible") or 0

    @property
    def deduplicates(self) -> bool:
        """Whether it has content-based deduplication."""
        return self.attributes.get("ContentBasedDeduplication", "").lower() == "true"

    def number(self, attribute: str) -> int | None:
        """Return an attribute that is a number, or None if the queue has no such attribute."""
        text = str(self.attributes.get(attribute, ""))
        return int(text) if text.isdecimal() else None

    @property
    def dead_letter_name(self) -> str | None:
        """The name of the queue that its redrive policy names, or None."""
        try:
            policy = json.loads(self.attributes.get("RedrivePolicy") or "{}")
            arn = str(policy["deadLetterTargetArn"])
        except (KeyError, TypeError, ValueError):
            return None
        return arn.rpartition(":")[2] or None

    @property
    def encryption_key(self) -> str | None:
        """The KMS key that needs its own permissions, if any.

        The key `alias/aws/sqs` permits everyone who may use the queue (SQS Developer Guide, "Key
        management").
        """
        key = self.attributes.get("KmsMasterKeyId")
        return key if key and not key.endswith("alias/aws/sqs") else None


class QueueInspector:
    """Calls SQS about the queues of one broker.

    If an endpoint can't be reached, it is not tried again, because each try may take seconds.
    """

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.time) -> None:
        self._broker = broker
        self._clock = clock
        self._down: dict[str, Answer] = {}
        # By the queue's URL. To make one takes much longer than a call.
        self._clients: dict[str, Any] = {}

    def inspect(self, name: str) -> QueueFacts:
        """Return SQS's answers about a queue, including its permissions.

        Args:
            name: Celery's name of the queue.
        """
        queue = self.look(name)
        if queue.url is None or queue.found.tried not in (Tried.ALLOWED, Tried.DENIED):
            return queue
        return replace(queue, tries={**queue.tries, **self._try_harmlessly(queue.url)})

    def look(self, name: str) -> QueueFacts:
        """Return SQS's answers about a queue, without trying its permissions."""
        sqs_name = self._broker.sqs_name(name)
        queue = QueueFacts(name=name, sqs_name=sqs_name, url=self._broker.predefined_url(name))
        if queue.url is not None:
            return self._look_at(queue, queue.url)
        if self._broker.config.predefined:
            return replace(queue, found=Answer(tried=Tried.NO_QUEUE))
        listed = self._call("", "ListQueues", QueueNamePrefix=sqs_name)
        queue = replace(queue, is_predefined=False, tries={"sqs:ListQueues": listed}, found=listed)
        urls: Any = listed.payload.get("QueueUrls") or ()
        url = next((each for each in urls if each.rsplit("/", 1)[-1] == sqs_name), None)
        if url is not None:
            return self._look_at(queue, url)
        if listed.tried is Tried.DENIED:
            return self._look_unlisted(queue, sqs_name, listed.payload.get("Account"))
        if listed.tried is Tried.ALLOWED:
            return replace(queue, found=Answer(tried=Tried.NO_QUEUE, skew=listed.skew))
        return queue

    def _look_unlisted(self, queue: QueueFacts, sqs_name: str, account: object) -> QueueFacts:
        """Look up a queue without permission to list queues, to name every other denial, too."""
        answer = self._call("", "GetQueueUrl", QueueName=sqs_name)
        if answer.tried is Tried.NO_QUEUE:
            return replace(queue, found=answer)
        url = answer.payload.get("QueueUrl")
        if url is not None:
            return self._look_at(queue, str(url))
        url = self._likely_url(sqs_name, account)
        if url is None:
            return queue
        guessed = {**self._look_at(queue, url).tries, **self._try_harmlessly(url)}
        # The queue may not exist, so only a denial is significant.
        denied = {action: each for action, each in guessed.items() if each.tried is Tried.DENIED}
        return replace(queue, tries=denied)

    def _likely_url(self, sqs_name: str, account: object) -> str | None:
        """Return the URL that a queue most likely has, or None if it can't be guessed.

        Servers other than AWS name no account in a denial, and accept any.
        """
        endpoint = self._broker.config.endpoint_url
        if account is None and endpoint is None:
            return None
        try:
            endpoint = new_client(self._broker.config, "", _PATIENT).meta.endpoint_url
        except Exception:
            return None
        return f"{str(endpoint).rstrip('/')}/{account or _NO_ACCOUNT}/{sqs_name}"

    def _look_at(self, queue: QueueFacts, url: str) -> QueueFacts:
        found = self._call(url, "GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        attributes: Any = found.payload.get("Attributes") or {}
        is_there = found.tried is not Tried.NO_QUEUE
        queue = replace(
            queue,
            url=url,
            found=found,
            attributes={str(key): str(value) for key, value in attributes.items()},
            tries={**queue.tries, **({"sqs:GetQueueAttributes": found} if is_there else {})},
        )
        return replace(queue, dead_letters=self._look_for_dead_letters(queue))

    def _look_for_dead_letters(self, queue: QueueFacts) -> Answer | None:
        """Return the answer about the dead-letter queue of a FIFO queue; None if it names none.

        Both are in the same account and region (SQS Developer Guide, "Using dead-letter queues"),
        so their URLs differ only in the name. A worker needs no permission for the dead-letter
        queue, so a denial is not significant.
        """
        name = queue.dead_letter_name
        if name is None or queue.url is None or not queue.is_fifo:
            return None
        url = f"{queue.url.rpartition('/')[0]}/{name}"
        return self._call(url, "GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])

    def _try_harmlessly(self, url: str) -> dict[str, Answer]:
        return {
            action: whether_permitted(self._call(url, operation, QueueUrl=url, **request))
            for action, (operation, request) in _HARMLESS.items()
        }

    def _call(self, url: str, operation: str, **request: Any) -> Answer:
        endpoint = ""
        asked_at = self._clock()
        try:
            if url not in self._clients:
                self._clients[url] = new_client(self._broker.config, url, _PATIENT)
            client = self._clients[url]
            endpoint = client.meta.endpoint_url
            if endpoint in self._down:
                return self._down[endpoint]
            payload = getattr(client, xform_name(operation))(**request)
        except Exception as error:
            # Any error is an answer: the call was not possible.
            answer = of_error(error, operation, endpoint, asked_at, self._clock())
            if answer.tried is Tried.UNREACHABLE and endpoint:
                self._down[endpoint] = answer
            return answer
        return of_payload(payload, asked_at, self._clock())


def of_payload(payload: Mapping[str, Any], asked_at: float, answered_at: float) -> Answer:
    """Return the answer for a call that succeeded. Times are Unix seconds."""
    skew = _skew(payload, asked_at, answered_at)
    return Answer(tried=Tried.ALLOWED, payload=payload, skew=skew)


def of_error(
    error: Exception, operation: str, endpoint: str, asked_at: float, answered_at: float
) -> Answer:
    """Return the answer for an error, without its text, which may quote a signature.

    Args:
        operation: The action that was called, by its name in the SQS API reference.
    """
    if isinstance(error, ClientError):
        code = _code(error.response.get("Error") or {})
        skew = _skew(error.response, asked_at, answered_at)
        if not adapter.is_answer_to(error, operation):
            reason = f"{error.operation_name}: {code}"
            return Answer(tried=Tried.CREDENTIALS, reason=reason, skew=skew)
        tried = _tried(error, operation, code)
        payload = _account_of(error) if tried is Tried.DENIED else {}
        return Answer(tried=tried, reason=code, payload=payload, skew=skew)
    name = type(error).__name__
    if isinstance(error, adapter.NO_CREDENTIALS):
        return Answer(tried=Tried.CREDENTIALS, reason=name)
    if isinstance(error, (BotoCoreError, OSError)) and not isinstance(error, ParamValidationError):
        reason = f"{name} at {endpoint}" if endpoint else name
        return Answer(tried=Tried.UNREACHABLE, reason=reason)
    return Answer(tried=Tried.REFUSED, reason=name)


def whether_permitted(answer: Answer) -> Answer:
    """Return whether a call that can't succeed was permitted."""
    failed: Any = answer.payload.get("Failed") or ()
    found = [adapter.of_error(entry) for entry in failed]
    if Outcome.DENIED in found:
        return Answer(tried=Tried.DENIED, reason=_code(failed[0]), skew=answer.skew)
    if answer.reason in ("InvalidParameterValue", "ReadCountOutOfRange"):
        return Answer(tried=Tried.ALLOWED, skew=answer.skew)
    return Answer(tried=answer.tried, reason=answer.reason, skew=answer.skew)


def _tried(error: ClientError, operation: str, code: str) -> Tried:
    if _OF_CREDENTIALS.fullmatch(code):
        return Tried.CREDENTIALS
    if code in ("NonExistentQueue", "QueueDoesNotExist"):
        return Tried.NO_QUEUE
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    outcome = adapter.of_exception(error, operation)
    if outcome is Outcome.DENIED:
        return Tried.DENIED
    if outcome in (Outcome.THROTTLED, Outcome.FAILED) or (status or 0) >= 500:
        return Tried.BUSY
    return Tried.REFUSED


def _account_of(error: ClientError) -> Mapping[str, str]:
    """Return the account in the ARN that a denial names: "on resource: arn:aws:sqs:..."."""
    found = _ARN.search(str((error.response.get("Error") or {}).get("Message")))
    return {} if found is None else {"Account": found[1]}


def _code(error: Mapping[str, Any]) -> str:
    """Return the last part of the error code, because servers prefix it differently."""
    return str(error.get("Code") or "unknown").rsplit(".", 1)[-1].rsplit("#", 1)[-1]


def _skew(answer: Mapping[str, Any], asked_at: float, answered_at: float) -> float | None:
    """Return how many seconds our clock is ahead of the answer's `Date`."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
    return (asked_at + answered_at) / 2 - theirs

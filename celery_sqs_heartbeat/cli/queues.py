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

from celery_sqs_heartbeat.cli.app import Broker
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
#: Codes of SQS's common errors that say more here than in a worker.
_OF_OUTAGE = ("InternalError", "InternalFailure", "ServiceUnavailable")
_OF_CREDENTIALS = ("IncompleteSignature", "MissingAuthenticationTokenException")
_ARN = re.compile(r"arn:aws[\w-]*:sqs:[\w-]*:(\d{12}):")


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
        if url := answer.payload.get("QueueUrl"):
            return self._look_at(queue, str(url))
        if self._broker.config.endpoint_url:
            # Servers other than AWS name no account in a denial, and accept any.
            account = account or _NO_ACCOUNT
        if account is None:
            return queue
        # The client exists, because SQS answered its calls.
        likely = f"{self._clients[''].meta.endpoint_url.rstrip('/')}/{account}/{sqs_name}"
        guessed = {**self._look_at(queue, likely).tries, **self._try_harmlessly(likely)}
        # The queue may not exist, so only a denial is significant.
        denied = {action: each for action, each in guessed.items() if each.tried is Tried.DENIED}
        return replace(queue, tries=denied)

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
        name = queue.dead_letter_name
        if name is None or not queue.is_fifo:
            return queue
        # Both queues are in the same account and region (SQS Developer Guide, "Using dead-letter
        # queues"), so their URLs differ only in the name. A worker needs no permission for the
        # dead-letter queue, so a denial is not significant.
        dead = f"{url.rpartition('/')[0]}/{name}"
        answer = self._call(dead, "GetQueueAttributes", QueueUrl=dead, AttributeNames=["QueueArn"])
        return replace(queue, dead_letters=answer)

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
            response = getattr(client, xform_name(operation))(**request)
            answer = Answer(tried=Tried.ALLOWED, payload=response)
        except Exception as error:
            # Any error is an answer: the call was not possible.
            response = getattr(error, "response", {})
            answer = of_error(error, operation, endpoint)
            if answer.tried is Tried.UNREACHABLE and endpoint:
                self._down[endpoint] = answer
        # The answer was made about halfway through the call.
        return replace(answer, skew=skew_of(response, (asked_at + self._clock()) / 2))


def of_error(error: Exception, operation: str, endpoint: str) -> Answer:
    """Return the answer for an error, without its text, which may quote a signature.

    Args:
        operation: The action that was called, by its name in the SQS API reference.
    """
    name = type(error).__name__
    if isinstance(error, ClientError):
        return _of_client_error(error, operation)
    if isinstance(error, adapter.NO_CREDENTIALS):
        return Answer(tried=Tried.CREDENTIALS, reason=name)
    if isinstance(error, (BotoCoreError, OSError)) and not isinstance(error, ParamValidationError):
        reason = f"{name} at {endpoint}" if endpoint else name
        return Answer(tried=Tried.UNREACHABLE, reason=reason)
    return Answer(tried=Tried.REFUSED, reason=name)


def _of_client_error(error: ClientError, operation: str) -> Answer:
    said = error.response.get("Error") or {}
    code = _code(said)
    if not adapter.is_answer_to(error, operation):
        return Answer(tried=Tried.CREDENTIALS, reason=f"{error.operation_name}: {code}")
    if code in ("NonExistentQueue", "QueueDoesNotExist"):
        return Answer(tried=Tried.NO_QUEUE, reason=code)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
    outcome = adapter.of_exception(error, operation)
    if outcome is Outcome.DENIED:
        # A denial names the queue: "on resource: arn:aws:sqs:...".
        found = _ARN.search(str(said.get("Message")))
        payload = {"Account": found[1]} if found else {}
        return Answer(tried=Tried.DENIED, reason=code, payload=payload)
    if outcome is Outcome.THROTTLED or status >= 500 or code in _OF_OUTAGE:
        return Answer(tried=Tried.BUSY, reason=code)
    # All other failures are about credentials.
    is_of_keys = outcome is Outcome.FAILED or code in _OF_CREDENTIALS
    return Answer(tried=Tried.CREDENTIALS if is_of_keys else Tried.REFUSED, reason=code)


def whether_permitted(answer: Answer) -> Answer:
    """Return whether a call that can't succeed was permitted."""
    failed: Any = answer.payload.get("Failed") or ()
    if Outcome.DENIED in map(adapter.of_error, failed):
        return replace(answer, tried=Tried.DENIED, reason=_code(failed[0]))
    if answer.reason in ("InvalidParameterValue", "ReadCountOutOfRange"):
        return replace(answer, tried=Tried.ALLOWED)
    return answer


def _code(error: Mapping[str, Any]) -> str:
    """Return the last part of the error code, because servers prefix it differently."""
    return str(error.get("Code") or "unknown").rsplit(".", 1)[-1].rsplit("#", 1)[-1]


def skew_of(response: Mapping[str, Any], now: float) -> float | None:
    """Return how many seconds our clock is ahead of a response's `Date`."""
    try:
        date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
        return now - parsedate_to_datetime(date).timestamp()
    except (KeyError, TypeError, ValueError):
        return None

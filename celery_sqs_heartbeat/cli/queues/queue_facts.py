"""SQS's answers about a queue, as plain values."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases.message import is_fifo


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
        found: The answer to the request for its attributes, or for its URL.
        tries: The answers to calls that change nothing, by the permission they need.
        dead_letters: The answer about the dead-letter queue, if a FIFO queue names one.
    """

    name: str
    sqs_name: str | None = None
    url: str | None = None
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

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue."""
        return is_fifo(self.url or self.name)

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

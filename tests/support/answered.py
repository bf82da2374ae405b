"""Clients whose answers a test chooses, with and without repeated requests."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from botocore.awsrequest import AWSResponse, HeadersDict
from urllib3 import HTTPResponse

from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry, Outcome
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms
from celery_sqs_heartbeat.sqs import sending
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, new_client

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
ACTIONS = {CallKind.CHANGE_VISIBILITY: Action.EXTEND, CallKind.DELETE: Action.DELETE}
#: An answer to a call with two entries.
CONFIRMED = {"Successful": [{"Id": "0"}, {"Id": "1"}]}


def config(**changed: Any) -> BrokerConfig:
    given: dict[str, Any] = {
        "endpoint_url": None,
        "region": "eu-west-1",
        "use_ssl": True,
        "access_key": "AKIATEST",
        "secret_key": "secret",
    }
    return BrokerConfig(**{**given, **changed})


def call_of(
    kind: CallKind = CallKind.CHANGE_VISIBILITY, queue: str = QUEUE, count: int = 2
) -> Call:
    """Return a call with new handles."""
    terms = LeaseTerms.of(30)
    return Call(
        kind,
        queue,
        tuple(
            Entry(
                Lease(queue_url=queue, message_id=str(index), terms=terms, held_since=0.0),
                f"AQEB+handle/{index}==é",
                ACTIONS[kind],
                30 + index,
            )
            for index in range(count)
        ),
        0.0,
    )


def texts(request: Any) -> dict[str, str]:
    """Return a request's headers, by names in lower case."""
    return {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }


def answer(
    body: Any = CONFIRMED, status: int = 200, headers: dict[str, str] | None = None
) -> Callable[[Any], AWSResponse]:
    """Return a function that answers a request."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def respond(request: Any) -> AWSResponse:
        raw = HTTPResponse(io.BytesIO(content), preload_content=False, status=status)
        given = {"x-amzn-RequestId": "1", "Content-Length": str(len(content)), **(headers or {})}
        return AWSResponse(request.url, status, HeadersDict(given), raw)

    return respond


class AnsweredClient:
    """A client of `ClientPool`, its requests, and the answers that a test chooses.

    Args:
        by_boto3: Whether boto3 makes each of its calls, whatever `new_client` decides.
    """

    def __init__(self, made: Any = None, *, by_boto3: bool = False, **changed: Any) -> None:
        self.client = new_client(config(**changed), QUEUE, 10) if made is None else made
        if by_boto3:
            delattr(self.client, sending._PREPARED)
        self.sqs = BotoSqs(self.client)
        self.answer: Callable[[Any], Any] = answer()
        self.requests: list[Any] = []
        #: How many calls boto3 has made itself.
        self.made_by_boto3 = 0
        self.client.meta.events.register("before-send", self._answer)
        self.client.meta.events.register("before-call", self._count)

    def send(self, call: Call | None = None) -> list[Outcome]:
        return list(self.sqs.send(call or call_of()))

    def repeats(self, call: Call | None = None) -> bool:
        """Make a call, and return whether it repeats a request that boto3 has prepared."""
        before = self.made_by_boto3
        self.send(call)
        return self.made_by_boto3 == before

    def _answer(self, request: Any, **_: Any) -> Any:
        self.requests.append(request)
        return self.answer(request)

    def _count(self, **_: Any) -> None:
        self.made_by_boto3 += 1

"""How calls are sent: not if they were given up, not on dead connections, and with less CPU.

A call can hang before anything is sent, for example while credentials are renewed. By then its
leases have joined another call. If it were still sent, it could hide a message that was released
in the meantime.

A firewall forgets connections that are idle, and drops silently what is sent on them later. A call
on such a connection takes as long as its timeout. If the next one found another such connection,
the leases of both would run out.

For each call boto3 checks the parameters, resolves the endpoint and builds the same headers. That
takes as long as its signature. Here it does so once for each client and operation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import currentframe
from itertools import islice, takewhile
from traceback import walk_stack
from typing import Any

from botocore import xform_name
from botocore.awsrequest import create_request_object
from botocore.client import BaseClient
from botocore.endpoint import convert_to_response_dict
from botocore.exceptions import ClientError
from botocore.hooks import first_non_none_response
from botocore.parsers import create_parser

from celery_sqs_heartbeat.common import clock

_may_send: ContextVar[Callable[[], bool]] = ContextVar("may_send", default=lambda: True)

#: How long a client uses its connections, in seconds. Firewalls forget idle ones later.
MAX_AGE_SECONDS = 10.0
#: An attribute of guarded clients.
_GUARDED = "sqs_heartbeat_guarded"


class CallGivenUp(OSError):
    """The keeper no longer waits for this call. Nothing was sent."""


@contextmanager
def sending_while(client: Any, may_send: Callable[[], bool]) -> Iterator[None]:
    """Call `may_send` right before a client sends a call of this thread or greenlet.

    A guarded client does that itself. For other clients it is done here.

    Raises:
        CallGivenUp: The call may not be sent.
    """
    token = _may_send.set(may_send)
    try:
        if getattr(client, _GUARDED, False) is not True:
            _refuse_given_up()
        yield
    finally:
        _may_send.reset(token)


def guard(client: Any) -> None:
    """Let a boto3 client send nothing for a call that was given up, or on a dead connection.

    It opens new connections every ten seconds, and after a call that failed. Calls that are under
    way keep theirs. A second call does nothing.
    """
    if not isinstance(client, BaseClient) or hasattr(client, _GUARDED):
        return
    setattr(client, _GUARDED, True)
    ends_at = 0.0

    def check_age(**_: Any) -> None:
        nonlocal ends_at
        if (now := clock.now()) >= ends_at:
            ends_at = now + MAX_AGE_SECONDS
            client.close()

    def check_answer(caught_exception: Exception | None = None, **_: Any) -> None:
        if caught_exception is not None:
            client.close()

    client.meta.events.register("before-send", _refuse_given_up)
    client.meta.events.register("before-send", check_age)
    client.meta.events.register("needs-retry", check_answer)


def _refuse_given_up(**_: Any) -> None:
    if not _may_send.get()():
        raise CallGivenUp("the call took too long before it was sent")


#: The content type of SQS's JSON protocol. Requests of its older protocol are not repeated.
_JSON = "application/x-amz-json-1.0"
_parser = create_parser("json")
#: An attribute of clients whose requests may be repeated.
_PREPARED = "sqs_heartbeat_prepared"
#: Names code that may change each request of each client (botocore's experimental plugins).
_PLUGINS = "BOTOCORE_EXPERIMENTAL__PLUGINS"


def prepare_calls(client: Any) -> None:
    """Let `make_call` repeat the requests of a boto3 client.

    Only for clients to which no one else has added event handlers: of boto3's events, a repeated
    request emits `before-send`, `choose-signer` and `before-sign`.
    Plugins and Sentry's SDK add handlers to every client, so with them it does nothing. A second
    call does nothing.
    """
    is_boto3s = BaseClient.__init__.__module__ == BaseClient.__module__
    is_new = isinstance(client, BaseClient) and not hasattr(client, _PREPARED)
    if is_new and is_boto3s and not os.environ.get(_PLUGINS):
        setattr(client, _PREPARED, _PreparedCalls(client))


def make_call(client: Any, operation: str, params: Mapping[str, Any]) -> Any:
    """Make a call and return SQS's answer, as boto3 returns it.

    Args:
        client: It chooses timeouts, credentials and connections: a long poll needs one whose read
            timeout is longer than the wait.
        operation: The name of the operation in the SQS API reference.
        params: Strings, numbers, and lists and dicts of such.

    Raises:
        Exception: Any error that the client's method raises.
    """
    calls = getattr(client, _PREPARED, None)
    requests = calls.requests if isinstance(calls, _PreparedCalls) else {}
    prepared = requests.get(operation)
    if prepared is None:
        return getattr(client, xform_name(operation))(**params)
    try:
        return prepared.repeat(client, params)
    except BaseException as error:
        # boto3 makes the next call, in case something refuses only repeated requests.
        requests.pop(operation, None)
        if not isinstance(error, ClientError):
            # The connection may be dead.
            client.close()
        raise


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Prepared:
    """A request that boto3 has prepared, without its signature, and what sent it."""

    request: Mapping[str, Any]
    model: Any
    signer: Any
    endpoint: Any

    def repeat(self, client: Any, params: Mapping[str, Any]) -> Any:
        """Send the request again with other parameters, and return the answer to it."""
        name = self.model.name
        context = dict(self.request["context"])
        body = json.dumps(params).encode()
        unsigned = create_request_object({**self.request, "body": body, "context": context})
        self.signer.sign(name, unsigned)
        request = self.endpoint.prepare_request(unsigned)
        answers = client.meta.events.emit(f"before-send.sqs.{name}", request=request)
        response = first_non_none_response(answers)
        if response is None:
            response = self.endpoint.http_session.send(request)
        parsed = _parser.parse(
            convert_to_response_dict(response, self.model), self.model.output_shape
        )
        if response.status_code >= 300:
            raise ClientError(parsed, name)
        return parsed


class _PreparedCalls:
    """The requests that boto3 has prepared for one client, by operation."""

    def __init__(self, client: Any) -> None:
        self.requests: dict[str, _Prepared] = {}
        self._signer: Any = None
        client.meta.events.register("before-call.sqs", self._note_signer)
        client.meta.events.register("needs-retry.sqs", self._note)

    def _note_signer(self, request_signer: Any, **_: Any) -> None:
        self._signer = request_signer

    def _note(
        self, response: Any, endpoint: Any, operation: Any, request_dict: Any, **_: Any
    ) -> None:
        """Keep a request that SQS has answered, if it is a call of `make_call`."""
        is_done = response is not None and response[0].status_code == 200
        if is_done and request_dict["headers"].get("Content-Type") == _JSON and _is_boto3_alone():
            self.requests[operation.name] = _Prepared(
                request=request_dict, model=operation, signer=self._signer, endpoint=endpoint
            )


def _is_boto3_alone() -> bool:
    """Return whether only boto3's code runs between `make_call` and here.

    Other code may be an instrumentation, which must see each call.
    """
    callers = (frame.f_globals.get("__name__", "") for frame, _ in walk_stack(currentframe()))
    # The first two are this function and the event's handler.
    between = takewhile(__name__.__ne__, islice(callers, 2, None))
    return all(name.startswith("botocore.") for name in between)

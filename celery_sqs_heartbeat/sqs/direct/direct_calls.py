"""Makes calls from the pattern of a call that boto3 has made before, if there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from botocore.client import BaseClient

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.sqs.direct.connecting import Servers
from celery_sqs_heartbeat.sqs.direct.learning import NoPattern, learn
from celery_sqs_heartbeat.sqs.direct.request_body import body_of
from celery_sqs_heartbeat.sqs.direct.request_pattern import PatternChanged, RequestPattern
from celery_sqs_heartbeat.sqs.direct.responses import read_response
from celery_sqs_heartbeat.sqs.direct.watching import make_watchable, watching

logger = get_logger(__name__)

#: An attribute of clients whose calls may be made directly.
_DIRECT = "sqs_heartbeat_direct"
#: Names code that may change each request of each client (botocore's experimental plugins).
_PLUGINS = "BOTOCORE_EXPERIMENTAL__PLUGINS"


def allow_direct_calls(client: Any) -> None:
    """Let `make_call` make calls of a boto3 client without boto3's preparation of each call.

    Only for clients to which no one else has added event handlers: a direct call emits no event but
    `before-send`.
    """
    if _is_as_boto3_made_it():
        make_watchable(client)
        setattr(client, _DIRECT, DirectCalls())


def make_deletes_direct(client: Any) -> None:
    """Let a boto3 client make its calls of `delete_message` directly.

    boto3 repeats a direct call that fails, so errors are those of boto3, after its retries.

    Only for clients to which no one else has added event handlers, see `allow_direct_calls`.
    """
    if not _is_as_boto3_made_it():
        return
    make_watchable(client)
    calls = DirectCalls(repeats=True)
    by_boto3 = client.delete_message

    def delete_message(**params: Any) -> Any:
        return calls.make(client, "DeleteMessage", params, by_boto3)

    client.delete_message = delete_message


def make_call(
    client: Any,
    operation: str,
    params: Mapping[str, Any],
    by_boto3: Callable[..., Any],
) -> Any:
    """Make a batch call and return SQS's answer.

    Args:
        operation: The name of the operation in the SQS API reference.
        by_boto3: The method of the client for that operation.

    Raises:
        Exception: Any error that the client's method raises.
    """
    direct = getattr(client, _DIRECT, None)
    if not isinstance(direct, DirectCalls):
        return by_boto3(**params)
    return direct.make(client, operation, params, by_boto3)


def _is_as_boto3_made_it() -> bool:
    """Return whether nothing adds event handlers to each client, as plugins and Sentry's SDK do."""
    return not os.environ.get(_PLUGINS) and BaseClient.__init__.__module__ == BaseClient.__module__


class DirectCalls:
    """The patterns of one client's calls, by operation and queue.

    boto3 makes the first call, the one after each call that failed, and all calls without a
    pattern. Several threads may use it.

    Args:
        repeats: Whether boto3 makes a call again that failed directly.
    """

    def __init__(self, *, repeats: bool = False) -> None:
        self._repeats = repeats
        self._patterns: dict[tuple[str, str], RequestPattern | None] = {}
        self._servers = Servers()

    def make(
        self,
        client: Any,
        operation: str,
        params: Mapping[str, Any],
        by_boto3: Callable[..., Any],
    ) -> Any:
        """Make a call, see `make_call`."""
        key = (operation, params["QueueUrl"])
        if key not in self._patterns:
            return self._watch(client, key, params, by_boto3)
        pattern = self._patterns[key]
        if pattern is None:
            return by_boto3(**params)
        try:
            return _send(client, operation, pattern, params)
        except PatternChanged:
            return self._watch(client, key, params, by_boto3)
        except BaseException as error:
            self._patterns.pop(key, None)
            if not self._repeats or not isinstance(error, Exception):
                raise
        return self._watch(client, key, params, by_boto3)

    def _watch(
        self,
        client: Any,
        key: tuple[str, str],
        params: Mapping[str, Any],
        by_boto3: Callable[..., Any],
    ) -> Any:
        with watching() as watched:
            answer = by_boto3(**params)
        if watched.status == 200:
            try:
                pattern = learn(watched, params)
                connections = self._servers.connections(pattern.url, client, pattern.http_session)
                self._patterns[key] = replace(pattern, connections=connections)
            except NoPattern as reason:
                self._patterns[key] = None
                logger.info("sqs-heartbeat: boto3 makes every %s on %s: %s", *key, reason)
            except Exception:
                self._patterns[key] = None
                logger.info("sqs-heartbeat: boto3 makes every %s on %s", *key, exc_info=True)
        return answer


def _send(client: Any, operation: str, pattern: RequestPattern, params: Mapping[str, Any]) -> Any:
    request = pattern.request(body_of(params))
    responses = client.meta.events.emit(f"before-send.sqs.{operation}", request=request)
    response = next((each for _, each in responses if each is not None), None)
    if response is None:
        response = pattern.send(request)
    return read_response(response, lambda: client.meta.service_model.operation_model(operation))

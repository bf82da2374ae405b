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
#: The longest row of calls that boto3 makes before a direct one is tried again.
_MOST_BY_BOTO3 = 1_024
#: Names code that may change each request of each client (botocore's experimental plugins).
_PLUGINS = "BOTOCORE_EXPERIMENTAL__PLUGINS"

#: An operation and a queue's URL.
Key = tuple[str, str]


def allow_direct_calls(client: Any) -> None:
    """Let `make_call` make calls of a boto3 client without boto3's preparation of each call.

    Only for clients to which no one else has added event handlers: a direct call emits no event but
    `before-send`. Plugins and Sentry's SDK add handlers to every client, so with them it does
    nothing.
    """
    is_boto3s = BaseClient.__init__.__module__ == BaseClient.__module__
    if is_boto3s and not os.environ.get(_PLUGINS):
        make_watchable(client)
        direct = DirectCalls()
        setattr(client, _DIRECT, direct)
        close = client.close

        def close_all() -> None:
            close()
            direct.close()

        client.close = close_all


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


class DirectCalls:
    """The patterns of one client's calls, by operation and queue.

    boto3 makes the first call, and all calls without a pattern. After a direct call that failed,
    boto3 makes the next one, and twice as many for each further failure in a row, because
    something on the way to SQS may refuse only direct calls. Several threads may use it.
    """

    def __init__(self) -> None:
        self._patterns: dict[Key, RequestPattern | None] = {}
        #: How many calls boto3 makes after the next failure.
        self._by_boto3: dict[Key, int] = {}
        #: How many of them are left, without the last one.
        self._left: dict[Key, int] = {}
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
        # Another thread may add or remove it at any time.
        pattern = self._patterns.get(key)
        if pattern is None:
            has_none = key in self._patterns
            return by_boto3(**params) if has_none else self._watch(client, key, params, by_boto3)
        try:
            answer = _send(client, operation, pattern, params)
        except PatternChanged:
            return self._watch(client, key, params, by_boto3)
        except BaseException:
            self._note_failure(key)
            client.close()
            raise
        self._by_boto3.pop(key, None)
        return answer

    def close(self) -> None:
        """Close the connections that no call uses. The next calls open others."""
        self._servers.close()

    def _note_failure(self, key: Key) -> None:
        calls = self._by_boto3.get(key, 1)
        self._by_boto3[key] = min(2 * calls, _MOST_BY_BOTO3)
        self._left[key] = calls - 1
        self._patterns.pop(key, None)

    def _watch(
        self,
        client: Any,
        key: Key,
        params: Mapping[str, Any],
        by_boto3: Callable[..., Any],
    ) -> Any:
        if left := self._left.get(key, 0):
            self._left[key] = left - 1
            return by_boto3(**params)
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

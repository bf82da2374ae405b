"""A worker's own connection to SQS, which records every call and injects faults."""

from __future__ import annotations

import base64
import functools
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.soak.fault_injector import FaultInjector
from tests.soak.model import CHANGE, DELETE, RECEIVE, SEND, Call, Entry
from tests.support.answers import Answer, Body
from tests.support.faults import Effect, Forward, delay
from tests.support.proxy import FaultProxy

#: The code of an entry whose handle is no longer its message's (SQS API reference,
#: BatchResultErrorEntry and DeleteMessage).
STALE = "ReceiptHandleIsInvalid"
_OPERATIONS = (RECEIVE, SEND, CHANGE, CHANGE + "Batch", DELETE, DELETE + "Batch")


class Link:
    """A proxy for one worker. So the audit knows which worker made each call.

    Args:
        calls: The list in which calls are recorded, in the order of their arrival.
        weather: None for the soak's own calls, which never fail.
    """

    def __init__(
        self, worker: str, server_url: str, calls: list[Call], weather: FaultInjector | None = None
    ) -> None:
        self._worker = worker
        self._calls = calls
        self._weather = weather
        self.proxy = FaultProxy(server_url)
        for operation in _OPERATIONS:
            self.proxy.rule(operation, functools.partial(self._handle, operation))
        if weather is not None:
            self.proxy.rule("GetQueueAttributes", self._hold)

    def _handle(self, operation: str, body: Body, forward: Forward) -> Answer:
        operation = operation.removesuffix("Batch")
        call = Call(
            worker=self._worker,
            operation=operation,
            queue=str(body["QueueUrl"]).rsplit("/", 1)[-1],
            started=time.monotonic(),
            entries=_asked(operation, body),
        )
        effect: Effect = lambda body, forward: forward(body)  # noqa: E731
        if self._weather and (drawn := self._weather.draw(call)):
            call.fault, effect = drawn
        if operation != RECEIVE:
            self._calls.append(call)
        drips_for = 0.0
        try:
            answer = effect(body, self._watching(call, forward))
            _read(call, body, answer, is_reported=not answer.drips)
            drips_for = answer.drips * len(answer.content)
            return answer
        finally:
            call.ended = time.monotonic() + drips_for
            # Otherwise the proxy's own record would grow during the whole soak.
            self.proxy.forget()

    def _hold(self, body: Body, forward: Forward) -> Answer:
        """Delay a call that is not recorded until the server's standstill has ended."""
        assert self._weather is not None
        return delay(self._weather.still_for(self._worker))(body, forward)

    def _watching(self, call: Call, forward: Forward) -> Forward:
        def watched(body: Body) -> Answer:
            call.forwarded = time.monotonic()
            answer = forward(body)
            call.done = time.monotonic()
            _read(call, body, answer, is_reported=False)
            if call.operation == RECEIVE and call.entries:
                # Empty receives are not recorded.
                self._calls.append(call)
            return answer

        return watched


def _asked(operation: str, body: Body) -> list[Entry]:
    if operation == SEND:
        group = str(body.get("MessageGroupId", ""))
        return [Entry(headers=_headers(body["MessageBody"]), group=group)]
    if operation == RECEIVE:
        return []
    return [
        Entry(handle=each["ReceiptHandle"], timeout=each.get("VisibilityTimeout", 0))
        for each in body.get("Entries", [body])
    ]


def _read(call: Call, body: Body, answer: Answer, *, is_reported: bool) -> None:
    """Record the results in an answer: the server's, or the one that the client receives."""
    if answer.status != 200:
        return
    payload = answer.payload
    if call.operation == RECEIVE and not call.entries:
        timeout = body.get("VisibilityTimeout", 0)
        call.entries = [_received(message, timeout) for message in payload.get("Messages", ())]
    if call.operation == SEND:
        call.entries[0].message_id = payload["MessageId"]
        call.entries[0].sequence = int(payload.get("SequenceNumber", 0))
    done, refused = {entry.handle for entry in call.entries}, set()
    if "Entries" in body:
        # The server may have received only some of this call's entries.
        done = _handles(body, payload.get("Successful", ()))
        stale = [each for each in payload.get("Failed", ()) if each["Code"] == STALE]
        refused = _handles(body, stale)
    for entry in call.entries:
        entry.refused |= is_reported and entry.handle in refused
        if entry.handle in done:
            entry.done, entry.told = True, is_reported


def _handles(body: Body, results: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the handles of the entries that results are about."""
    ids = {each["Id"] for each in results}
    return {each["ReceiptHandle"] for each in body["Entries"] if each["Id"] in ids}


def _received(message: dict[str, Any], timeout: int) -> Entry:
    return Entry(
        message_id=message["MessageId"],
        handle=message["ReceiptHandle"],
        count=int(message["Attributes"]["ApproximateReceiveCount"]),
        timeout=timeout,
    )


def _headers(body: str) -> dict[str, Any]:
    """Return the Celery headers that the audit needs."""
    headers = json.loads(base64.b64decode(body))["headers"]
    return {name: headers.get(name) for name in ("id", "task", "eta", "expires", "retries")}

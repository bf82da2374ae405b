"""A worker's own connection to SQS, which records every call and injects faults."""

from __future__ import annotations

import base64
import functools
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.soak.records import CHANGE, DELETE, RECEIVE, SEND, Call, Entry
from tests.support import faults
from tests.support.faults import Answer, Body, Effect, Forward, delay, reset
from tests.support.proxy import FaultProxy

OPERATIONS = (RECEIVE, CHANGE, DELETE, SEND)
#: The longest delay of a call or an answer, in seconds.
LATEST = 3.0
#: The faults that may happen to a call. Each is made from a number from 0 to 1.
FAULTS: dict[str, Callable[[float], Effect]] = {
    "slow": lambda number: delay(0.05 + 0.35 * number),
    "delayed": lambda number: delay(1 + (LATEST - 1) * number),
    "late answer": lambda number: faults.answer_late(1 + (LATEST - 1) * number),
    "reset": lambda number: reset(),
    "500": lambda number: faults.fail(),
    "503": lambda number: faults.fail(503, "ServiceUnavailable"),
    "throttled": lambda number: faults.throttle(),
    "lost answer": lambda number: faults.lose_answer(),
    "refused": lambda number: faults.deny(),
    "hidden": lambda number: faults.fail(400, "QueueDoesNotExist"),
    "drips": lambda number: faults.drip(0.1 + number),
    "never answered": lambda number: faults.never_answer(is_done=number > 0.5),
    "entries refused": lambda number: faults.fail_entries(0.5, seed=int(number * 1e6)),
}
#: The operations that a fault is limited to. boto3 gives up other calls on its own.
_ONLY_OF = dict.fromkeys(("refused", "hidden", "drips", "entries refused"), (CHANGE, DELETE))
_ONLY_OF["never answered"] = (RECEIVE,)
#: Refusals of a queue. The call after each of them is not refused: a permission that is missing for
#: long costs every lease, and no other fault could be seen.
_REFUSALS = {"refused", "hidden"}
#: The code of an entry whose handle is no longer its message's (SQS API reference,
#: BatchResultErrorEntry and DeleteMessage).
STALE = "ReceiptHandleIsInvalid"


class FaultInjector:
    """Decides what happens to a call. The kinds of faults change with time. Thread-safe.

    Args:
        chance: Used only here, because threads race for its numbers.

    Attributes:
        cut_off: The workers of which every connection is reset.
    """

    def __init__(self, chance: random.Random) -> None:
        self.cut_off: frozenset[str] = frozenset()
        self._chance = chance
        self._rate = 0.0
        self._operations: tuple[str, ...] = ()
        self._faults: tuple[str, ...] = ()
        self._refused: set[tuple[str, str, str]] = set()

    def change(self) -> str:
        """Draw new kinds of faults. Return their name."""
        name, self._rate = self._chance.choice(
            [("calm", 0.0), ("calm", 0.0), ("breeze", 0.1), ("storm", 0.4), ("outage", 1.0)]
        )
        count = self._chance.randint(1, 2) if name == "outage" else len(OPERATIONS)
        self._operations = tuple(self._chance.sample(OPERATIONS, count))
        self._faults = tuple(FAULTS)
        if name == "outage":
            # All faults of an outage are of one kind, for example throttling.
            self._faults = (self._chance.choice(["reset", "500", "503", "throttled", "delayed"]),)
            return f"{name}: {', '.join(self._operations)} {self._faults[0]}"
        return name

    def clear(self) -> None:
        """Inject no more faults."""
        self._rate, self.cut_off = 0.0, frozenset()

    def draw(self, call: Call) -> tuple[str, Effect] | None:
        """Return what happens to a call, with its name, or None for nothing."""
        target = (call.worker, call.operation, call.queue)
        if call.worker in self.cut_off:
            return "cut off", reset()
        if call.operation not in self._operations or self._chance.random() >= self._rate:
            self._refused.discard(target)
            return None
        kinds = [
            name
            for name in self._faults
            if call.operation in _ONLY_OF.get(name, OPERATIONS)
            and not (target in self._refused and name in _REFUSALS)
        ]
        name = self._chance.choice(kinds)
        if name in _REFUSALS:
            self._refused.add(target)
        return name, FAULTS[name](self._chance.random())


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
        for operation in (RECEIVE, SEND, CHANGE, CHANGE + "Batch", DELETE, DELETE + "Batch"):
            self.proxy.rule(operation, functools.partial(self._handle, operation))

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
        headers = json.loads(base64.b64decode(body["MessageBody"]))["headers"]
        needed = {name: headers.get(name) for name in ("id", "task", "eta", "expires", "retries")}
        return [Entry(headers=needed, group=str(body.get("MessageGroupId", "")))]
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
        call.entries = [
            Entry(
                message_id=message["MessageId"],
                handle=message["ReceiptHandle"],
                count=int(message["Attributes"]["ApproximateReceiveCount"]),
                timeout=body.get("VisibilityTimeout", 0),
            )
            for message in payload.get("Messages", ())
        ]
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

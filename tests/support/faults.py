"""The faults that a test can inject with the proxy.

An effect gets the call's body and a function that forwards it, and returns the answer. So effects
compose. Rates use a seeded generator: the same calls in the same order meet the same faults,
although racing threads may swap theirs.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.waiting import PATIENCE

Body = dict[str, Any]


class Unanswered(Exception):
    """The client is left waiting until the proxy stops."""


class ConnectionDropped(Exception):
    """The client gets no answer: its connection closes.

    Attributes:
        reset: Close with a TCP reset instead of an orderly end.
    """

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status, headers and body of one answer.

    Attributes:
        drips: Seconds between the bytes of its body. No read timeout ends that.
    """

    status: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)
    drips: float = 0.0

    @classmethod
    def of(cls, payload: Body, *, status: int = 200, **headers: str) -> Answer:
        """Return an answer with this JSON body; `_` in a header's name means `-`."""
        return cls(
            status=status,
            content=json.dumps(payload).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )

    @property
    def payload(self) -> Body:
        """The JSON body, empty when the server sent none or no JSON object."""
        try:
            decoded = json.loads(self.content or b"{}")
        except ValueError:
            return {}
        return decoded if isinstance(decoded, dict) else {}


def error(status: int, code: str, message: str, *, query_code: str | None = None) -> Answer:
    """Return an error as SQS words it.

    Args:
        status: HTTP status. Below 500 the error names the sender as its cause.
        code: Name of the error's shape.
        message: Text for people.
        query_code: The older name that boto3 prefers when the two differ.
    """
    fault = "Sender" if status < 500 else "Receiver"
    return Answer.of(
        {"__type": f"com.amazonaws.sqs#{code}", "message": message},
        status=status,
        x_amzn_query_error=f"{query_code or code};{fault}",
    )


Forward = Callable[[Body], Answer]
Effect = Callable[[Body, Forward], Answer]


def fail(
    status: int = 500, code: str = "InternalError", rate: float = 1.0, *, seed: int = 0
) -> Effect:
    """Answer with an error and forward nothing."""
    return _sometimes(lambda body, forward: error(status, code, "Injected fault."), rate, seed)


def deny() -> Effect:
    """Refuse every call as a missing IAM permission does."""
    denied = error(
        403,
        "AccessDeniedException",
        "User is not authorized to perform this action. (injected)",
        query_code="AccessDenied",
    )
    return lambda body, forward: denied


def throttle(code: str = "RequestThrottled", rate: float = 1.0, *, seed: int = 0) -> Effect:
    """Refuse calls as a busy service does. The other possible code is `ThrottlingException`."""
    return fail(400, code, rate, seed=seed)


def delay(seconds: float) -> Effect:
    """Delay every call by this time before it is forwarded."""

    def effect(body: Body, forward: Forward) -> Answer:
        time.sleep(seconds)
        return forward(body)

    return effect


def forward_after(event: threading.Event) -> Effect:
    """Delay calls until the event has happened. Their client may be gone by then."""

    def effect(body: Body, forward: Forward) -> Answer:
        event.wait(PATIENCE)
        return forward(body)

    return effect


def answer_late(seconds: float) -> Effect:
    """Delay every answer by this time. The server has done the work by then."""

    def effect(body: Body, forward: Forward) -> Answer:
        answer = forward(body)
        time.sleep(seconds)
        return answer

    return effect


def drip(seconds: float) -> Effect:
    """Answer byte by byte, with pauses of `seconds`. No timeout ends that."""
    return lambda body, forward: replace(forward(body), drips=seconds)


def lose_answer(rate: float = 1.0, *, seed: int = 0) -> Effect:
    """Let the server do the work, then close the connection without telling the client."""

    def effect(body: Body, forward: Forward) -> Answer:
        forward(body)
        raise ConnectionDropped(reset=False)

    return _sometimes(effect, rate, seed)


def never_answer(*, is_done: bool = False) -> Effect:
    """Leave the client waiting until the proxy stops. The server does the work only if `is_done`.

    That happens behind a NAT that has forgotten the connection.
    """

    def effect(body: Body, forward: Forward) -> Answer:
        if is_done:
            forward(body)
        raise Unanswered

    return effect


def reset(rate: float = 1.0, *, seed: int = 0) -> Effect:
    """Reset the connection before anything is forwarded."""

    def effect(body: Body, forward: Forward) -> Answer:
        raise ConnectionDropped(reset=True)

    return _sometimes(effect, rate, seed)


def fail_entries(
    rate: float = 1.0,
    *,
    code: str = "InternalError",
    sender_fault: bool = False,
    seed: int = 0,
) -> Effect:
    """Refuse some entries of a batch and let the server answer for the others."""
    generator = random.Random(seed)

    def effect(body: Body, forward: Forward) -> Answer:
        entries = body["Entries"]
        refused = [entry["Id"] for entry in entries if generator.random() < rate]
        failed = [
            {"Id": id_, "SenderFault": sender_fault, "Code": code, "Message": "Injected fault."}
            for id_ in refused
        ]
        kept = [entry for entry in entries if entry["Id"] not in refused]
        if not kept:
            return Answer.of({"Failed": failed})
        answer = forward({**body, "Entries": kept})
        if not failed or answer.status != 200:
            return answer
        payload = answer.payload
        return Answer.of({**payload, "Failed": [*payload.get("Failed", ()), *failed]})

    return effect


def first(count: int, effect: Effect) -> Effect:
    """Apply an effect to the first `count` calls only."""
    # next() on a count is a single C call, so two threads never get the same number.
    numbers = itertools.count()
    return lambda body, forward: effect(body, forward) if next(numbers) < count else forward(body)


def _sometimes(effect: Effect, rate: float, seed: int) -> Effect:
    generator = random.Random(seed)
    return lambda body, forward: (
        effect(body, forward) if generator.random() < rate else forward(body)
    )

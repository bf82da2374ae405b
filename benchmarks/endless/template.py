"""Renders Celery's messages as kombu's SQS transport sends them."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from itertools import count
from typing import Any

#: What a rendered message replaces, in the envelope and in the task's arguments.
TASK_ID = "11111111-2222-4333-8444-555555555555"
SENT = 123456789.125
_BODY = "@BODY@"
#: The length of a standard queue's handles varies around this, in characters.
_HANDLE_TAIL = "x" * 160

#: The last message of this server. Task ids, message ids and handles are made from it.
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Message:
    """One received message: `text` is its JSON up to its attributes."""

    handle: str
    sent_ms: int
    text: str


class Template:
    """A message that is rendered over and over.

    Args:
        envelope: kombu's JSON of a message, with `TASK_ID`, and `@BODY@` instead of its body.
        body: The JSON of the task's arguments, perhaps with `SENT`.
    """

    def __init__(self, envelope: str, body: str) -> None:
        self._envelope = envelope
        self._body = body
        self._is_timed = repr(SENT) in body
        # Only the id changes in the messages of a task without the time as its argument.
        self._filled = envelope.replace(_BODY, _base64(body))

    @classmethod
    def of(cls, payload: dict[str, Any]) -> Template:
        """Return the template of a message that was sent with `TASK_ID`, as kombu stores it."""
        body = base64.b64decode(payload["body"]).decode()
        return cls(json.dumps({**payload, "body": _BODY}), body)

    @property
    def parts(self) -> dict[str, str]:
        """The arguments of another such template, as JSON."""
        return {"envelope": self._envelope, "body": self._body}

    def render(self, sent: float, sent_ms: int) -> Message:
        """Return the next message.

        Args:
            sent: Monotonic seconds, which the task gets as its argument.
            sent_ms: The attribute `SentTimestamp`.
        """
        number = next(_numbers)
        unique = f"{number:08x}-0000-4000-8000-{sent_ms:012x}"
        filled = self._filled
        if self._is_timed:
            body = self._body.replace(repr(SENT), repr(sent))
            filled = self._envelope.replace(_BODY, _base64(body))
        text = _base64(filled.replace(TASK_ID, unique))
        handle = f"AQEB{number:016x}{_HANDLE_TAIL}"
        digest = hashlib.md5(text.encode()).hexdigest()
        return Message(
            handle,
            sent_ms,
            f'{{"MessageId":"{unique}","ReceiptHandle":"{handle}",'
            f'"MD5OfBody":"{digest}","Body":"{text}"',
        )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

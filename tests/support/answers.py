"""What an SQS server answers in the AWS JSON protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

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

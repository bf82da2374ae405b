"""Watches how boto3 makes a call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore

_BOTOCORE, _HERE = (f"{Path(file).parent}{os.sep}" for file in (botocore.__file__, __file__))


@dataclass(slots=True, repr=False)
class Watched:
    """What was seen of one call.

    Attributes:
        signing: What the client's signer was asked to do, by the names of botocore's event
            `before-sign`.
        request: The request as it was sent.
        http_session: What sent it.
        status: The HTTP status of the answer.
        wrapper: The file of code that runs around boto3's, if any. It may be an instrumentation,
            which must see each call.
    """

    signing: Mapping[str, Any] = field(default_factory=dict)
    request: Any = None
    http_session: Any = None
    status: int = 0
    wrapper: str | None = None


_watched: ContextVar[Watched | None] = ContextVar("watched", default=None)


@contextmanager
def watching() -> Iterator[Watched]:
    """Watch the call that a watched client makes in the block."""
    token = _watched.set(watched := Watched())
    try:
        yield watched
    finally:
        _watched.reset(token)


def make_watchable(client: Any) -> None:
    """Let `watching` watch the calls of a boto3 client."""
    for event, handler in (
        ("before-sign", _note_signing),
        ("before-send", _note_request),
        ("needs-retry", _note_answer),
    ):
        client.meta.events.register(event, handler)


def _note_signing(**signing: Any) -> None:
    if (watched := _watched.get()) is not None:
        watched.signing = signing


def _note_request(request: Any, **_: Any) -> None:
    if (watched := _watched.get()) is not None:
        watched.request = request
        watched.wrapper = _find_wrapper()


def _note_answer(endpoint: Any, response: Any = None, **_: Any) -> None:
    if (watched := _watched.get()) is not None and response is not None:
        watched.http_session = endpoint.http_session
        watched.status = response[0].status_code


def _find_wrapper() -> str | None:
    """Return the file of the code between this package and botocore, if there is any."""
    frame = inspect.currentframe()
    has_left = False
    while frame is not None:
        file = frame.f_code.co_filename
        is_here = file.startswith(_HERE)
        if has_left and is_here:
            return None
        has_left = has_left or not is_here
        if not is_here and not file.startswith(_BOTOCORE):
            return file
        frame = frame.f_back
    return None

"""The answer of each path."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from importlib.resources import files
from typing import Any, Protocol

from celery_sqs_heartbeat.observe.observers import Watched
from celery_sqs_heartbeat.observe.polled import Polled
from celery_sqs_heartbeat.observe.recorder import Recorder
from celery_sqs_heartbeat.observe.status.http import RefusedError, Request, Response
from celery_sqs_heartbeat.observe.status.payloads import (
    STUCK,
    TROUBLES,
    events_payload,
    health_payload,
    leases_payload,
)

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Exposer(Protocol):
    """Returns metrics in a text format."""

    content_type: str

    def exposition(self) -> bytes:
        """Return the metrics."""


class Pages:
    """Answers requests that the guard has accepted.

    Args:
        metrics: Shown under `/metrics`, if given.
        name: The worker's name, for the page's title.
        polled: How SQS answers the polls of the worker's queues, if that is known.
    """

    def __init__(
        self,
        keeper: Watched,
        recorder: Recorder,
        metrics: Exposer | None,
        name: str,
        polled: Polled | None = None,
    ) -> None:
        self._keeper = keeper
        self._polled = polled
        self._paths: dict[str, Callable[[], Response]] = {
            "/livez": lambda: self._health(STUCK),
            **dict.fromkeys(("/readyz", "/healthz"), lambda: self._health(TROUBLES)),
            "/leases": lambda: _json(leases_payload(keeper, recorder, name, polled)),
            "/events": lambda: _json(events_payload(keeper, recorder)),
        }
        if metrics is not None:
            self._paths["/metrics"] = lambda: Response(
                body=metrics.exposition(), content_type=metrics.content_type
            )
        # Read now, because later no file descriptor may be left.
        assets = files(__package__) / "assets"
        self._files = {
            path: Response(body=(assets / file).read_bytes(), content_type=content_type)
            for path, (file, content_type) in _FILES.items()
        }

    def answer(self, request: Request) -> Response:
        """Return the answer to a request.

        Raises:
            RefusedError: The path does not exist.
        """
        if request.path in self._files:
            return self._files[request.path]
        if request.path not in self._paths:
            known = ", ".join(sorted({"/", *self._paths}))
            raise RefusedError(404, f"This path does not exist. The paths are {known}.")
        return self._paths[request.path]()

    def _health(self, troubles: Container[str]) -> Response:
        health = health_payload(self._keeper, self._polled)
        return _json(health, status=503 if health["status"] in troubles else 200)


def _json(payload: Mapping[str, Any], *, status: int = 200) -> Response:
    body = json.dumps(payload, separators=(",", ":")).encode()
    return Response(status=status, content_type="application/json", body=body)

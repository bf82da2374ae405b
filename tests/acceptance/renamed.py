"""The acceptance tests' app, on a kombu that polls by an unknown method."""

from __future__ import annotations

from typing import Any

from kombu.transport.SQS import Channel

_schedule = Channel._schedule_queue
_consume = Channel.basic_consume


def _consume_otherwise(self: Any, queue: str, *args: Any, **kwargs: Any) -> Any:
    """Begin to poll as kombu does, by the method's new name."""
    hub, self.hub = self.hub, None
    tag = _consume(self, queue, *args, **kwargs)
    self.hub = hub
    hub.call_soon(_schedule, self, queue)
    return tag


def _go_on_otherwise(self: Any, queue: str, *_: Any) -> None:
    self.hub.call_soon(_schedule, self, queue)


Channel.basic_consume, Channel._loop1 = _consume_otherwise, _go_on_otherwise
del Channel._schedule_queue

from tests.acceptance.proj import app  # noqa: E402, F401

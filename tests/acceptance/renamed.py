"""The acceptance tests' app, on a kombu that polls by an unknown method.

`RENAMED=gone` removes `_schedule_queue`, as a renaming would.
`RENAMED=not importable` removes a name of billiard that we import.
`RENAMED=old` changes kombu's version.
`RENAMED=unused` keeps the method, but no longer calls it.
"""

from __future__ import annotations

import os
from typing import Any

import kombu
from billiard import einfo
from celery.app import trace  # noqa: F401
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
if os.environ["RENAMED"] == "gone":
    del Channel._schedule_queue
if os.environ["RENAMED"] == "old":
    kombu.__version__ = "5.4.2"
if os.environ["RENAMED"] == "not importable":
    del einfo.ExceptionWithTraceback

from tests.acceptance.proj import app  # noqa: E402, F401

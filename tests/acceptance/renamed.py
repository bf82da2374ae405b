"""The acceptance tests' app, on a kombu that polls by an unknown method.

`RENAMED=gone` removes `_get_async`, as a renaming would.
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
from vine import ensure_promise

_poll = Channel._get_async


def _get_bulk_async(self: Any, queue: str, *args: Any, callback: Any = None) -> Any:
    """Poll as kombu does, by the method's new name."""
    if count := self._get_message_estimate():
        return _poll(self, queue, count, callback=callback)
    callback = ensure_promise(callback)
    callback([])
    return callback


Channel._get_bulk_async = _get_bulk_async
if os.environ["RENAMED"] == "gone":
    del Channel._get_async
if os.environ["RENAMED"] == "old":
    kombu.__version__ = "5.4.2"
if os.environ["RENAMED"] == "not importable":
    del einfo.ExceptionWithTraceback

from tests.acceptance.proj import app  # noqa: E402, F401

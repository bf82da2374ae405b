"""The acceptance tests' app, on a kombu that polls by a method that nobody has seen.

`RENAMED=gone` has it without `_get_async`, as after a renaming, and billiard without a name that
we import; `RENAMED=unused` leaves the method where it is, but calls it no more.
"""

from __future__ import annotations

import os
from typing import Any

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
    del einfo.ExceptionWithTraceback

from tests.acceptance.proj import app  # noqa: E402, F401

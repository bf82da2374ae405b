"""Follows the tries of a receive that boto3 sends, because boto3 repeats receives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.poll import Poll

_EVENT = "before-send.sqs.ReceiveMessage"
#: Registers the handler once per client. Each registration clears botocore's cache of handlers.
_ID = "sqs-heartbeat-receive-tries"


class _Thread(threading.local):
    """The receive that a thread sends. boto3 sends it on the thread that calls."""

    note: Callable[[], object] | None = None


_thread = _Thread()


@contextmanager
def following(client: Any, poll: Poll, note_failure: Callable[[], object]) -> Iterator[None]:
    """Set a poll's sending time to that of boto3's last try.

    boto3 repeats a receive after its read timeout, too: 60 s, unless `client-config` sets another.
    Other threads may send receives with the same client meanwhile.

    Args:
        note_failure: Is called when a try has failed and is repeated.
    """

    def note_sending() -> None:
        if poll.is_sent:
            note_failure()
        poll.is_sent, poll.sent_at = True, clock.now()

    client.meta.events.register(_EVENT, _note_sending, unique_id=_ID)
    _thread.note = note_sending
    try:
        yield
    finally:
        _thread.note = None


def _note_sending(**_: Any) -> None:
    if _thread.note is not None:
        _thread.note()

"""Keeps a poll that is not sent yet from being sent when nobody will read its answer.

kombu only writes a request down where it is made; curl sends it in the event loop's next tick.
A signal between the two begins a cold or soft shutdown in its handler, which cancels the
consumers and gives the messages back. The interrupted tick then goes on to its end, and the
poll would take those very messages: hidden from everybody for a whole visibility timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import pycurl
except ImportError:  # kombu 5.5 sends with urllib3, in the same step that makes the request.
    pycurl = None


def guard_sending(http_client: Any, may_send: Callable[[], bool]) -> None:
    """Have kombu's curl client ask `may_send` right before it sends a request.

    One that may not be sent fails: with pycurl's E_ABORTED_BY_CALLBACK.
    """
    if not hasattr(pycurl, "PREREQFUNCTION") or hasattr(http_client, "_is_guarded"):
        return

    def decide(*_: Any) -> int:
        return int(pycurl.PREREQFUNC_OK if may_send() else pycurl.PREREQFUNC_ABORT)

    for curl in http_client._curls:
        curl.setopt(pycurl.PREREQFUNCTION, decide)
    http_client._is_guarded = True

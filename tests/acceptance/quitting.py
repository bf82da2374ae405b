"""Tells a worker to quit in the middle of its work on a poll, when a test requests it.

The signal may come while the worker records a message that was handed over, and when the consumer's
thread delivers messages of which nothing else knows yet.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_sqs_heartbeat.link.held_messages import HeldMessages
from celery_sqs_heartbeat.transport.delivery import Deliverer

#: By moment, the class and the method that is called then.
MOMENTS = {
    "reading": (HeldMessages, "add"),
    "delivering": (Deliverer, "deliver"),
}


def quit_during(moment: str, file: Path) -> None:
    """Send SIGQUIT to this process once, at one of the moments, when that file exists."""
    owner, name = MOMENTS[moment]
    original: Callable[..., Any] = getattr(owner, name)

    def quit_and_continue(*args: Any, **options: Any) -> Any:
        if file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGQUIT)
        return original(*args, **options)

    setattr(owner, name, quit_and_continue)

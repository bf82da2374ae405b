"""Tells a worker to quit in the middle of curl's work on an open poll, when a test asks for it.

curl looks about once a second whether to go on with a poll, by a function of ours. A signal that
comes then finds curl at work, on which no other thread may work until its handler is through.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from celery_sqs_heartbeat.transport.poll_watching import PollWatcher


def quit_amid_curls_work(file: Path) -> None:
    """Have SIGQUIT sent to this process, once, amid curl's work, when that file is there."""
    is_aborted = PollWatcher.is_aborted

    def look(watcher: PollWatcher) -> bool:
        if file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGQUIT)
        return is_aborted(watcher)

    PollWatcher.is_aborted = look  # type: ignore[method-assign]

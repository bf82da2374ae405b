"""The usual home-made remedy: a thread for each task extends the task's message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def extended_by_a_thread(extend: Callable[[], object], every: float) -> Iterator[None]:
    """Extend a message during the block, from a thread.

    Args:
        extend: Starts the message's visibility timeout again.
        every: The pause before each extension, in seconds.
    """
    has_ended = threading.Event()

    def keep_extending() -> None:
        while not has_ended.wait(every):
            extend()

    thread = threading.Thread(target=keep_extending, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()

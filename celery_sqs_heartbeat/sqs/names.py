"""The names that SQS accepts for queues."""

from __future__ import annotations

import re

#: SQS API reference, CreateQueue, QueueName; the suffix of a FIFO queue counts towards the 80.
LONGEST_NAME = 80
#: How the names of FIFO queues end.
FIFO_SUFFIX = ".fifo"
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]+")


def is_queue_name(name: str) -> bool:
    """Return whether SQS accepts a name for a queue, standard or FIFO."""
    stem = name.removesuffix(FIFO_SUFFIX)
    return len(name) <= LONGEST_NAME and _CHARACTERS.fullmatch(stem) is not None

"""The sequence numbers of a FIFO queue's messages."""

from __future__ import annotations

#: In public records of six accounts from 2020 and 2021, AWS's numbers were all this, plus
#: 256,000 for each millisecond of `SentTimestamp`, plus a little. So they have 20 digits, and don't
#: fit into 64 bits. The API reference only says that their length is "128 bits".
FIRST = 2**64
PER_MILLISECOND = 256_000
STEP = 256


class SequenceNumbers:
    """Numbers that rise with each message, and leave gaps (SQS API reference, SendMessage)."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: float) -> int:
        """Return the next number."""
        self._last = max(self._last + STEP, FIRST + int(now * 1000) * PER_MILLISECOND)
        return self._last

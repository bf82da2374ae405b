"""Messages as SQS returns them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
TASK = "orders.tasks.ship"
#: The length of a receipt handle, in characters.
HANDLE_LENGTH = 184


def messages(count: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield messages, each with the id of its task."""
    chance = random.Random(1)
    for index in range(count):
        # SQS's time in milliseconds.
        sent = str(1_700_000_000_000 + index)
        yield (
            {
                "MessageId": _uuid(chance),
                "ReceiptHandle": f"AQEB{chance.getrandbits(4 * (HANDLE_LENGTH - 4)):0180x}",
                "Attributes": {
                    "ApproximateReceiveCount": "1",
                    "SentTimestamp": sent,
                    "ApproximateFirstReceiveTimestamp": sent,
                },
            },
            _uuid(chance),
        )


def _uuid(chance: random.Random) -> str:
    digits = f"{chance.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

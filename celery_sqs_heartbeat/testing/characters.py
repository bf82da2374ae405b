"""The characters that SQS takes in messages."""

from __future__ import annotations

import re

#: SQS API reference, SendMessage, MessageBody.
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: What SQS says to the others.
REFUSAL = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


def are_allowed(text: str) -> bool:
    """Return whether SQS takes all characters of a body, of a string value or of its type."""
    return not _REFUSED.search(text)


def size_of(data: str | bytes) -> int:
    """Return how many bytes a part of a message takes, whether SQS takes it or not."""
    return len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
